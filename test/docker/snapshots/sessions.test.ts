import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { lstat, mkdir, readdir, readFile, readlink, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';

const TakenSchema = z.object({
  id: z.string(),
  created: z.boolean(),
  files: z.int(),
  changedFiles: z.int(),
  newBytes: z.int(),
  frozenMs: z.number(),
});
const ListSchema = z.object({
  snapshots: z.array(
    z.object({
      id: z.string(),
      reason: z.string(),
      label: z.string().nullable(),
      files: z.int(),
      turn: z.object({ id: z.string(), prompt: z.string() }).nullable(),
    }),
  ),
  usage: z.object({ snapshots: z.int(), bytes: z.int() }),
});
const RestoredSchema = z.object({ undo: z.string(), created: z.int(), replaced: z.int(), removed: z.int() });
const ResumedSchema = z.object({ undo: z.string().nullable(), session: z.object({ id: z.string() }) });
const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const ChangesSchema = z.object({ changes: z.array(z.object({ path: z.string(), kind: z.string() })) });

describe('the command line creates, compares and restores snapshots', () => {
  let home: TestHome;
  let id: string;
  beforeAll(async () => {
    home = await TestHome.create();
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('passing', ''))]);
    id = await made('shell', 'main');
  });
  afterAll(() => home.dispose());

  const made = async (profile: string, name: string, ...more: string[]): Promise<string> =>
    CreatedSchema.parse(await home.runJson(['session', 'create', profile, '--name', name, ...more])).session
      .id;
  const prompt = (name: string, text: string): Promise<string> => home.runOk(['prompt', name, text]);
  const take = async (name: string, ...more: string[]) =>
    TakenSchema.parse(await home.runJson(['snapshot', 'create', name, ...more]));
  const list = async (name: string) => ListSchema.parse(await home.runJson(['snapshot', 'list', name]));
  const inside = (session: string, path = ''): string => join(home.path, 'workspaces', session, path);

  /** Every name below the workspace with all that a snapshot keeps of it. */
  async function treeOf(session: string): Promise<string[]> {
    const seen: string[] = [];
    for (const entry of (await readdir(inside(session), { recursive: true })).sort()) {
      const path = inside(session, entry);
      const { mode, size, nlink, mtimeNs } = await lstat(path, { bigint: true });
      const status = await lstat(path);
      const content = status.isSymbolicLink()
        ? await readlink(path)
        : status.isFile()
          ? (await readFile(path)).toString('base64')
          : '';
      const links = status.isDirectory() ? '' : String(nlink);
      seen.push([entry, mode, status.isDirectory() ? '' : size, links, mtimeNs, content].join(' '));
    }
    return seen;
  }

  test('a snapshot shows the prompt of the turn before it', async () => {
    await made('shell', 'named');
    await prompt('named', 'echo first > one');
    await prompt('named', 'echo second > two\n# and\tmore');
    await take('named', '--label', 'by hand');
    const { snapshots } = await list('named');
    expect(snapshots.map(({ reason, turn }) => [reason, turn?.prompt])).toEqual([
      ['manual', undefined],
      ['after-turn', 'echo second > two # and more'],
      ['after-turn', 'echo first > one'],
      ['start', undefined],
    ]);
    const shown = await home.runOk(['snapshot', 'list', 'named']);
    expect(shown).toMatch(/ PROMPT$/m);
    expect(shown).toMatch(/ echo second > two # and more$/m);
  });

  test('a tree is restored exactly, whole or in part, and a restore can be undone', async () => {
    await prompt(
      'main',
      'mkdir -p src/deep empty .git/objects; echo one > src/a; echo two > src/deep/b; ln src/a src/same; ln -s ../a src/deep/l; ' +
        'echo x > .git/HEAD; chmod 0400 src/deep/b; chmod 0711 empty; mkfifo pipe; truncate -s 5M holes; printf end >> holes',
    );
    await utimes(inside(id, 'src/a'), 1.5, 1_234_567_890.123);
    const first = await take('main', '--label', 'first');
    expect(first).toMatchObject({ created: true, files: 7 });
    const before = await treeOf(id);
    await prompt(
      'main',
      'chmod 700 empty; rm -rf src/deep; echo changed > src/a; echo more > n; rm pipe; mv holes h2',
    );
    const after = await treeOf(id);

    const seen = ChangesSchema.parse(await home.runJson(['snapshot', 'diff', first.id, 'now']));
    const kinds = new Map(seen.changes.map(({ path, kind }) => [path, kind]));
    expect(kinds.get('/workspace/n')).toBe('added');
    expect(kinds.get('/workspace/src/a')).toBe('modified');
    expect(kinds.get('/workspace/pipe')).toBe('deleted');
    expect(kinds.get('/workspace/h2')).toBe('renamed');
    const previewed = await home.runOk(['snapshot', 'restore', 'main', first.id, '--preview']);
    expect(previewed).toContain('/workspace/n');
    expect(await treeOf(id)).toEqual(after);

    const part = RestoredSchema.parse(
      await home.runJson(['snapshot', 'restore', 'main', first.id, '--path', 'src/deep']),
    );
    expect(await readFile(inside(id, 'src/deep/b'), 'utf8')).toBe('two\n');
    expect(await readFile(inside(id, 'src/a'), 'utf8')).toBe('changed\n');
    await home.runOk(['snapshot', 'restore', 'main', part.undo]);
    expect(await treeOf(id)).toEqual(after);

    const whole = RestoredSchema.parse(await home.runJson(['snapshot', 'restore', 'main', first.id]));
    expect(await treeOf(id)).toEqual(before);
    expect(await prompt('main', 'cat src/deep/l src/same')).toBe('one\none\n');
    expect(whole.removed).toBeGreaterThan(0);
    expect(await home.runOk(['snapshot', 'verify', first.id])).toContain('is intact');
    await home.runOk(['snapshot', 'restore', 'main', whole.undo]);
    expect(await treeOf(id)).toEqual(after);
  });

  test('every turn has a snapshot, and without changes it is the previous one', async () => {
    const name = 'turns';
    const session = await made('shell', name);
    await prompt(name, 'echo 1 > f');
    await prompt(name, 'cat f');
    await prompt(name, 'cat f');
    await prompt(name, 'echo 2 > f');
    // The last one is created in the background.
    await expect.poll(async () => (await list(name)).usage.snapshots, { timeout: 20_000 }).toBe(3);
    const { snapshots } = await list(name);
    expect(snapshots.map(({ reason, files }) => [reason, files])).toEqual([
      ['after-turn', 1],
      ['after-turn', 1],
      ['start', 0],
    ]);
    // One that a person asks for is theirs from now on.
    const mine = await take(name);
    expect(mine).toMatchObject({ id: snapshots[0]?.id, created: false });
    expect((await list(name)).snapshots[0]).toMatchObject({ id: mine.id, reason: 'manual' });
    // It has the turns since.
    await prompt(name, 'cat f');
    const later = await take(name);
    expect(later.created).toBe(true);
    await home.runOk(['snapshot', 'restore', name, snapshots[1]?.id ?? '']);
    expect(await readFile(inside(session, 'f'), 'utf8')).toBe('1\n');
  });

  test('reset empties the workspace and names the snapshot that restores it', async () => {
    const session = await made('shell', 'reset');
    await prompt('reset', 'mkdir d; echo kept > d/f');
    const reset = ResumedSchema.parse(await home.runJson(['session', 'reset', 'reset']));
    expect(await readdir(inside(session))).toEqual([]);
    const back = await home.runJson(['session', 'resume', 'reset', '--from', `snapshot:${reset.undo ?? ''}`]);
    expect(ResumedSchema.parse(back).session.id).toBe(session);
    expect(await prompt('reset', 'cat d/f')).toBe('kept\n');
    const { snapshots } = await list('reset');
    expect(snapshots.map(({ reason }) => reason)).toEqual([
      'before-turn',
      'before-restore',
      'after-turn',
      'start',
    ]);
    // The undo of the reset is the snapshot after the turn: nothing had changed since.
    expect(snapshots[2]?.id).toBe(reset.undo);
  });

  test('a restore is refused while something is active; --cancel ends it first', async () => {
    const session = await made('shell', 'live');
    await prompt('live', 'echo before > f');
    const { id: snapshot } = await take('live');
    const { turnId } = z
      .object({ turnId: z.string() })
      .parse(await home.runJson(['prompt', 'live', 'echo during > f; sleep 600', '--no-wait']));
    await expect.poll(() => readFile(inside(session, 'f'), 'utf8'), { timeout: 20_000 }).toBe('during\n');
    const refused = await home.run(['snapshot', 'restore', 'live', snapshot]);
    expect(refused.stderr).toMatch(/^error conflict: .*1 turn.*--cancel/);
    expect(await readFile(inside(session, 'f'), 'utf8')).toBe('during\n');
    await home.runOk(['snapshot', 'restore', 'live', snapshot, '--cancel']);
    expect(await readFile(inside(session, 'f'), 'utf8')).toBe('before\n');
    const { turn } = z
      .object({ turn: z.object({ status: z.string() }) })
      .parse(await home.runJson(['turn', 'show', turnId]));
    expect(turn.status).toBe('cancelled');
  });

  test('a fork has its own files and turns, and the source session is not touched', async () => {
    const session = await made('shell', 'source');
    await prompt('source', 'head -c 100000 /dev/zero | tr "\\0" x; echo; echo one > f');
    const { id: snapshot } = await take('source');
    await prompt('source', 'echo two > f');
    const before = await treeOf(session);
    const { sessionId } = z
      .object({ sessionId: z.string() })
      .parse(await home.runJson(['snapshot', 'fork', snapshot, '--name', 'fork']));
    expect(await prompt('fork', 'cat f; echo three > f')).toBe('one\n');
    expect(await treeOf(session)).toEqual(before);
    const { turns } = z
      .object({ turns: z.array(z.object({ turnId: z.string() })) })
      .parse(await home.runJson(['turn', 'list', 'fork']));
    expect(turns.length).toBe(2);
    // Output that is in a file beside the history is the fork's own: it stays when the other session goes.
    await home.runOk(['session', 'delete', 'source', '--force']);
    const wait = await home.runJson(['turn', 'wait', turns[1]?.turnId ?? '']);
    expect(z.object({ output: z.string() }).parse(wait).output.length).toBe(100_001);
    expect((await home.run(['session', 'verify', sessionId])).code).toBe(0);
    const refused = await home.run(['snapshot', 'delete', snapshot, '--force']);
    expect(refused.stderr).toMatch(/^error conflict: .*was created from it/);
    const other = await made('shell', 'begun', '--from', `snapshot:${snapshot}`, '--wait');
    expect(await readFile(inside(other, 'f'), 'utf8')).toBe('one\n');
  });

  test('a deleted session can be recovered from its last snapshot', async () => {
    const session = await made('shell', 'gone');
    await prompt('gone', 'mkdir d; echo dear > d/f');
    await home.runOk(['session', 'delete', 'gone', '--force']);
    expect(await readdir(join(home.path, 'workspaces'))).not.toContain(session);
    const [last] = (await list(session)).snapshots;
    // That of the deletion, or the one after the turn if that was complete.
    expect(last).toMatchObject({ files: 1 });
    expect((await home.run(['snapshot', 'restore', session, last?.id ?? ''])).stderr).toMatch(
      /it was deleted/,
    );
    const compared = await home.run(['snapshot', 'diff', last?.id ?? '', 'now']);
    expect(compared.stderr).toMatch(/^error not_found: .*it was deleted.*snapshot fork/);
    await home.runOk(['snapshot', 'fork', last?.id ?? '', '--name', 'back']);
    expect(await prompt('back', 'cat d/f')).toBe('dear\n');
    // Nothing is kept of a workspace that is empty, nor of a throw-away.
    const empty = await made('shell', 'empty');
    await home.runOk(['session', 'delete', 'empty', '--force']);
    expect((await list(empty)).snapshots).toEqual([]);
    expect(await readdir(join(home.path, 'store'))).not.toContain(empty);
    const before = await readdir(join(home.path, 'store'));
    await home.runOk(['run', 'passing', 'echo x > f']);
    expect(await readdir(join(home.path, 'store'))).toEqual(before);
  });

  test('other lineages, an ephemeral workspace and a device are refused with an explanation', async () => {
    await made('shell', 'one');
    await made('shell', 'two');
    await prompt('one', 'echo 1 > f');
    const { id: theirs } = await take('one');
    for (const args of [
      ['snapshot', 'restore', 'two', theirs],
      ['session', 'resume', 'two', '--from', `snapshot:${theirs}`],
      ['snapshot', 'restore', 'two', 'snp-aaaaaaaaaaaaaaaa'],
      ['snapshot', 'fork', 'snp-aaaaaaaaaaaaaaaa'],
      ['session', 'create', 'shell', '--from', 'snapshot:snp-aaaaaaaaaaaaaaaa'],
    ]) {
      expect((await home.run(args)).stderr).toMatch(/^error not_found: There is no snapshot/);
    }
    await made('passing', 'short');
    await prompt('short', 'echo 1 > f');
    const { id: snapshot } = await take('short');
    expect((await home.run(['snapshot', 'restore', 'short', snapshot])).stderr).toMatch(
      /^error not_supported: .*ephemeral/,
    );
    await home.runOk(['snapshot', 'fork', snapshot, '--name', 'kept']);
    expect(await prompt('kept', 'cat f')).toBe('1\n');
  });

  test('a damaged snapshot is never restored: nothing changes, a fork reports it, and reset still works', async () => {
    const session = await made('shell', 'damaged');
    await prompt('damaged', 'head -c 200000 /dev/urandom > f; echo one > g');
    const { id: snapshot } = await take('damaged', '--label', 'of it');
    const packs = join(home.path, 'store', session, 'packs');
    for (const name of await readdir(packs)) {
      const bytes = await readFile(join(packs, name));
      if (bytes.length < 100_000) continue;
      bytes[50_000] = (bytes[50_000] ?? 0) ^ 8;
      await writeFile(join(packs, name), bytes);
    }
    await prompt('damaged', 'echo two > g; rm f');
    const before = await treeOf(session);
    const restored = await home.run(['snapshot', 'restore', 'damaged', snapshot]);
    expect(restored.stderr).toMatch(/^error snapshot_damaged: /);
    expect(await treeOf(session)).toEqual(before);
    const forked = await home.run(['snapshot', 'fork', snapshot, '--name', 'fruitless', '--wait']);
    expect(forked.stderr).toMatch(/^error snapshot_damaged: The files of fruitless are incomplete; /);
    // It is there, says why it has no files, and takes others.
    expect(await home.runOk(['session', 'show', 'fruitless'])).toMatch(
      new RegExp(`incomplete: copying from ${snapshot} failed .snapshot_damaged: `),
    );
    expect(await home.runOk(['session', 'list'])).toMatch(/fruitless .*copying failed/);
    expect((await home.run(['prompt', 'fruitless', 'true'])).stderr).toMatch(/snapshot_damaged/);
    const failures = (
      await home.runOk(['session', 'events', 'fruitless', '--type', 'workspace.hydration-failed', '--json'])
    ).trim();
    expect(failures.split('\n').map((line) => (JSON.parse(line) as { data: unknown }).data)).toMatchObject([
      { snapshotId: snapshot, code: 'snapshot_damaged' },
    ]);
    await home.runOk(['session', 'reset', 'fruitless']);
    expect(await prompt('fruitless', 'ls -A')).toBe('');
    const again = await home.run([
      'session',
      'create',
      'shell',
      '--name',
      'never',
      '--from',
      `snapshot:${snapshot}`,
      '--wait',
    ]);
    expect(again.stderr).toMatch(/^error snapshot_damaged: /);
    await home.runOk(['session', 'delete', 'never', '--force']);
    const verified = await home.run(['snapshot', 'verify', snapshot]);
    expect([verified.code, verified.stdout]).toEqual([1, expect.stringContaining('f') as string]);
    await home.runOk(['session', 'reset', 'damaged']);
    expect(await prompt('damaged', 'ls -A')).toBe('');
  });

  test('a failed snapshot is reported, and the turn continues', async ({ skip }) => {
    const session = await made('shell', 'device');
    await prompt('device', 'echo 1 > f');
    await mkdir(inside(session, 'sub'));
    const mknod = spawn('mknod', [inside(session, 'sub/null'), 'c', '1', '3']);
    const [code] = (await once(mknod, 'exit')) as [number];
    skip(code !== 0, 'only root can make a device');
    expect(await prompt('device', 'cat f')).toBe('1\n');
    const { events } = z
      .object({ events: z.array(z.object({ data: z.object({ why: z.string() }) })) })
      .parse({
        events: (await home.runOk(['session', 'events', 'device', '--type', 'snapshot.failed', '--json']))
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line) as unknown),
      });
    expect(events[0]?.data.why).toContain('sub/null');
    await rm(inside(session, 'sub/null'));
    await writeFile(inside(session, 'sub/f'), '');
    expect((await take('device')).created).toBe(true);
  });

  test('a constant writer is frozen for milliseconds and then continues', async () => {
    const session = await made('shell', 'restless');
    await prompt(
      'restless',
      'for d in 1 2 3 4 5; do mkdir d$d; for f in $(seq 600); do : > d$d/$f; done; done',
    );
    const { turnId } = z
      .object({ turnId: z.string() })
      .parse(
        await home.runJson([
          'prompt',
          'restless',
          'n=0; while [ ! -e stop ]; do n=$((n+1)); echo $n > t; mv t d$((n%5+1))/last; echo $n > t; mv t d1/other; done; echo stopped',
          '--no-wait',
        ]),
      );
    await expect.poll(() => readdir(inside(session, 'd3')), { timeout: 20_000 }).toContain('last');
    let taken = await take('restless');
    // On a busy machine the writer may get no processor during a whole scan.
    for (let tries = 0; taken.frozenMs === 0 && tries < 10; tries += 1) taken = await take('restless');
    expect(taken.frozenMs).toBeGreaterThan(0);
    expect(taken.frozenMs).toBeLessThan(5000);
    await writeFile(inside(session, 'stop'), '');
    expect(await home.runJson(['turn', 'wait', turnId])).toMatchObject({
      status: 'succeeded',
      output: 'stopped\n',
    });
    expect(await home.runOk(['snapshot', 'verify', taken.id])).toContain('is intact');
    await home.runOk(['snapshot', 'restore', 'restless', taken.id]);
    // Two writes after each other: of one moment, the second is never behind the first by more than one.
    const last = await Promise.all(
      [1, 2, 3, 4, 5].map(async (d) => Number(await readFile(inside(session, `d${d}/last`), 'utf8'))),
    );
    const other = Number(await readFile(inside(session, 'd1/other'), 'utf8'));
    expect(Math.max(...last) - other).toBeLessThanOrEqual(1);
    expect(Math.max(...last) - other).toBeGreaterThanOrEqual(0);
  });
});
