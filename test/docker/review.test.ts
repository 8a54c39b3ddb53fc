import { lstat, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { BlameSchema } from '../../protocol/blame.ts';
import { CheckResultSchema } from '../../protocol/checks.ts';
import { HunkSchema, ReviewFileSchema, ReviewSchema } from '../../protocol/review.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const ListSchema = z.object({ review: ReviewSchema, files: z.array(ReviewFileSchema) });
const DecidedSchema = z.object({ review: ReviewSchema, decided: z.int() });
const DiffSchema = z.object({
  files: z.array(z.object({ file: ReviewFileSchema, hunks: z.array(HunkSchema) })),
});

const CHECKED =
  'persistence: persistent\n' +
  `checks: { clean: 'cat a; test ! -e b && test -e deps/x && touch written', other: 'exit 3' }\n`;
const BEFORE =
  'seq 20 > lines; echo keep > same; echo old > gone; printf "#!/bin/sh\\n" > tool; mkdir d; echo m > d/moved; ln -s same link';
const AFTER =
  'sed -i "s/^3$/three/; s/^17$/seventeen/" lines; rm gone; chmod +x tool; mkdir e .vscode; mv d/moved e/moved; ' +
  'rmdir d; ln -sfn /etc link; echo "{}" > .vscode/tasks.json; printf "a\\0b" > blob';

describe('reviewing what an agent did through its shell', () => {
  let home: TestHome;
  let id: string;
  let base: string;
  beforeAll(async () => {
    home = await TestHome.create();
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell', CHECKED))]);
    id = CreatedSchema.parse(await home.runJson(['session', 'create', 'shell', '--name', 'main'])).session.id;
    await home.runOk(['prompt', 'main', BEFORE]);
    base = z.object({ id: z.string() }).parse(await home.runJson(['snapshot', 'create', 'main'])).id;
    await home.runOk(['prompt', 'main', AFTER]);
  });
  afterAll(() => home.dispose());

  const inside = (path: string): string => join(home.path, 'workspaces', id, path);
  const review = async (...more: string[]) =>
    ListSchema.parse(await home.runJson(['review', 'main', ...more]));
  const hunksOf = async (path: string) =>
    DiffSchema.parse(await home.runJson(['review', 'diff', 'main', path])).files[0]?.hunks ?? [];
  const states = async (): Promise<Record<string, string>> =>
    Object.fromEntries((await review()).files.map(({ path, state }) => [path.slice(11), state]));

  test('lists it by risk; hunks, files and folders are accepted and rejected, undone and carried on', async () => {
    const listed = await review('--base', `snapshot:${base}`);
    expect(listed.files.map(({ path, kind, risks }) => [path.slice(11), kind, risks])).toEqual([
      ['.vscode/tasks.json', 'added', ['executes']],
      ['tool', 'mode', ['executes', 'mode']],
      ['link', 'modified', ['outside']],
      ['blob', 'added', []],
      ['e/moved', 'renamed', []],
      ['gone', 'deleted', []],
      ['lines', 'modified', []],
    ]);
    const text = await home.runOk(['review', 'main']);
    expect(text).toMatch(/^A\s+\.vscode\/tasks\.json\s+to review\s+executes$/m);
    expect(text).toMatch(/^R\s+d\/moved → e\/moved/m);

    const [first, second] = await hunksOf('lines');
    const diff = await home.runOk(['review', 'diff', 'main', 'lines']);
    expect(diff).toContain(`@@ -3,1 +3,1 @@ ${first?.id ?? ''} to review`);
    expect(diff).toMatch(/^-17\n\+seventeen$/m);

    await home.runOk(['review', 'accept', 'main', `lines:${first?.id ?? ''}`]);
    await home.runOk(['review', 'reject', 'main', `lines:${second?.id ?? ''}`]);
    expect((await readFile(inside('lines'), 'utf8')).split('\n').slice(0, 17)).toEqual([
      '1',
      '2',
      'three',
      ...Array.from({ length: 14 }, (_, n) => String(n + 4)),
    ]);

    // Each kind of change is taken back, in one step.
    await home.runOk(['review', 'reject', 'main', '.vscode', 'tool', 'link', 'e', 'gone', 'blob']);
    const there = (path: string) =>
      lstat(inside(path)).then(
        () => true,
        () => false,
      );
    expect(await Promise.all(['.vscode/tasks.json', 'e/moved', 'blob'].map(there))).toEqual([
      false,
      false,
      false,
    ]);
    expect(await readFile(inside('gone'), 'utf8')).toBe('old\n');
    expect(await readFile(inside('d/moved'), 'utf8')).toBe('m\n');
    expect((await lstat(inside('tool'))).mode & 0o777).toBe(0o644);
    expect(await readFile(inside('link'), 'utf8')).toBe('keep\n');
    await home.runOk(['review', 'undo', 'main']);
    expect(await Promise.all(['.vscode/tasks.json', 'e/moved', 'blob'].map(there))).toEqual([
      true,
      true,
      true,
    ]);
    expect((await lstat(inside('tool'))).mode & 0o777).toBe(0o755);

    const all = DecidedSchema.parse(await home.runJson(['review', 'accept', 'main', '--all']));
    expect(all.review.counts).toMatchObject({ files: 7, toReview: 0, accepted: 6, partial: 1 });
    // Opened again, what was rejected has no difference any more, and all else stays accepted.
    expect(Object.values(await states())).toEqual(Array.from({ length: 7 }, () => 'accepted'));

    // The supervisor is replaced, and the agent goes on.
    await home.runOk(['supervisor', 'stop']);
    await home.runOk(['prompt', 'main', 'echo more >> lines; echo evil > blob']);
    expect(await states()).toMatchObject({ lines: 'partial', blob: 'to-review', 'e/moved': 'accepted' });
    expect((await review()).files.find(({ path }) => path.endsWith('blob'))?.again).toBe(true);
  });

  test('a file that somebody changes meanwhile is not overwritten', async () => {
    await review();
    await writeFile(inside('blob'), 'mine\n');
    const { code, stderr } = await home.run(['review', 'reject', 'main', 'blob']);
    expect(code).toBe(1);
    expect(stderr).toMatch(/^error conflict: /);
    expect(await readFile(inside('blob'), 'utf8')).toBe('mine\n');
  });

  test('comments on lines are kept, listed and sent to the agent as a prompt', async () => {
    await review();
    await home.runOk(['review', 'comment', 'main', 'lines:2-3', 'why in words?']);
    expect(await home.runOk(['review', 'comment', 'main'])).toMatch(
      /^lines:2-3 {2}cmt-\w+ {2}not sent\n {2}> 2\n {2}> three\n {2}why in words\?$/m,
    );
    const { turnId } = z
      .object({ turnId: z.string() })
      .parse(await home.runJson(['review', 'comment', 'main', '--send']));
    await home.run(['turn', 'wait', turnId]);
    expect(await home.runOk(['review', 'comment', 'main'])).toContain(`sent with ${turnId}`);
    const again = await home.run(['review', 'comment', 'main', '--send']);
    expect([again.code, again.stderr]).toEqual([1, expect.stringMatching(/^error not_found: /)]);
  });

  test('says which turn changed a line last, through its shell, and which lines are the person’s', async () => {
    await home.runOk(['prompt', 'main', 'printf "a\\nb\\n" > told']);
    await home.runOk(['snapshot', 'create', 'main']);
    await writeFile(inside('told'), 'a\nB\n');
    const blame = BlameSchema.omit({ nextLine: true }).parse(
      await home.runJson(['review', 'blame', 'main', 'told']),
    );
    expect(blame).toMatchObject({
      lines: 2,
      ranges: [
        { start: 0, end: 1, origin: 0 },
        { start: 1, end: 2, origin: 1 },
      ],
      origins: [
        { kind: 'turn', turns: [{ prompt: 'printf "a\\nb\\n" > told' }] },
        { kind: 'person', turns: [], to: null },
      ],
    });
    const text = await home.runOk(['review', 'blame', 'main', 'told']);
    expect(text).toMatch(/^\S.* printf .* 1│ a\nyou +2│ B\n/);
    expect(await home.runOk(['review', 'blame', 'main', 'told:1'])).toMatch(/^told:1 {2}turn-\w{16}/);
  });

  test('checks judge the workspace, or exactly what was accepted in a sandbox that leaves nothing behind', async () => {
    const session = CreatedSchema.parse(
      await home.runJson(['session', 'create', 'shell', '--name', 'judged']),
    );
    const ofJudged = (path: string): string => join(home.path, 'workspaces', session.session.id, path);
    await home.runOk(['prompt', 'judged', 'echo deps/ > .gitignore; echo 1 > a']);
    const begun = z.object({ id: z.string() }).parse(await home.runJson(['snapshot', 'create', 'judged'])).id;
    await home.runOk(['prompt', 'judged', 'echo 2 > a; echo bad > b; mkdir deps; echo dependency > deps/x']);
    await home.runOk(['review', 'judged', '--base', `snapshot:${begun}`]);
    await home.runOk(['review', 'accept', 'judged', 'a']);

    const ResultsSchema = z.object({ checks: z.array(CheckResultSchema) });
    const accepted = await home.run(['check', 'judged', 'clean', '--accepted', '--json']);
    expect(accepted).toMatchObject({ code: 0 });
    const [good] = ResultsSchema.parse(JSON.parse(accepted.stdout)).checks;
    expect(good).toMatchObject({ exitCode: 0, of: 'accepted', outputBytes: 2, review: { ignored: 1 } });
    await expect(lstat(ofJudged('written'))).rejects.toThrow('ENOENT');
    const repeated = z
      .object({ checks: z.array(z.object({ checkId: z.string(), cached: z.boolean() })) })
      .parse(await home.runJson(['check', 'judged', 'clean', '--accepted']));
    expect(repeated.checks).toEqual([{ checkId: good?.checkId, cached: true }]);

    const text = await home.run(['check', 'judged']);
    expect([text.code, text.stdout]).toEqual([
      1,
      expect.stringMatching(/^clean {2}failed with exit code 1 .*\nother {2}failed with exit code 3 .*\n$/),
    ]);
    expect(text.stderr).toContain('2\n');
    const told = await home.runOk(['session', 'events', 'judged', '--type', 'check.ended', '--json']);
    expect(told).toContain(good?.tree);
    const { sessions } = z
      .object({ sessions: z.array(z.object({ name: z.string() })) })
      .parse(await home.runJson(['session', 'list']));
    expect(sessions.map(({ name }) => name).sort()).toEqual(['judged', 'main']);
  });
});
