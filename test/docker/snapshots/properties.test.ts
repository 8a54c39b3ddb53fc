import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { parsePath, WORKSPACE } from '../../../protocol/paths.ts';
import { ChangeSchema, SnapshotSchema } from '../../../protocol/snapshots.ts';
import { TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { type TreeDescription, differences, TREE_CODE } from './tree.ts';
import { soakCount } from '../../setup/run-length.ts';

const TakenSchema = SnapshotSchema.extend({ created: z.boolean() });
const ForkedSchema = z.object({ sessionId: z.string() });
const CreatedSchema = z.object({ session: z.object({ id: z.string() }) });
const DiffSchema = z.object({ changes: z.array(ChangeSchema) });
type Tree = Readonly<Record<string, TreeDescription>>;

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
  await home.runOk(['deploy', await writeProject(home.projects, { ...shellProject('trees'), ...TREE_CODE })]);
});
afterAll(() => home.dispose());

const deed = (session: string, ...args: string[]): Promise<string> =>
  home.runOk(['exec', session, '--', 'python3', '/agent/tree.py', ...args]);
/** Without owners: each session has a user of its own, to whom all of its files belong. */
async function describeTree(session: string): Promise<Tree> {
  const described = JSON.parse(await deed(session, 'describe', '/dev/stdout')) as Tree;
  return Object.fromEntries(
    Object.entries(described).map(([path, { owner: _owner, ...rest }]) => [path, rest]),
  );
}
const take = async (session: string) =>
  TakenSchema.parse(await home.runJson(['snapshot', 'create', session]));

/** Paths (in hexadecimal) that a comparison has to tell: see docs/snapshots-format.md. */
function changedPaths(before: Tree, after: Tree): string[] {
  const known = (one: TreeDescription | undefined): Record<string, unknown> | null => {
    if (one === undefined) return null;
    // Of the names of a file the first one stands for all.
    const links = one['links'];
    return { ...one, links: Array.isArray(links) ? (links[0] as unknown) : null };
  };
  const differing = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter(
    (path) => JSON.stringify(known(before[path])) !== JSON.stringify(known(after[path])),
  );
  const timeless = (one: TreeDescription | undefined): string =>
    JSON.stringify({ ...known(one), mtime: null });
  return differing
    .filter((path) => {
      const holdsChange = differing.some((other) => other.startsWith(`${path}2f`));
      return !holdsChange || timeless(before[path]) !== timeless(after[path]);
    })
    .sort();
}

function hexOf(path: string): string {
  const names = parsePath(path).map((name) => Buffer.concat([Buffer.from('/'), name]));
  return Buffer.concat([Buffer.from(WORKSPACE), ...names]).toString('hex');
}

test(
  'a tree is restored in every attribute, differences are reported, and a fork never changes its source',
  { timeout: 1_800_000 },
  async () => {
    const seed = seedOfRun('whole snapshots');
    const made = await home.runJson(['session', 'create', 'trees', '--name', 'source']);
    const source = CreatedSchema.parse(made).session.id;
    for (let round = 0; round < soakCount(2, 60); round += 1) {
      await deed(source, 'clear');
      await deed(source, 'make', String(seed + round));
      const before = await describeTree(source);
      const first = await take(source);
      expect(
        differences(before, await describeTree(source)),
        `taking changes nothing, round ${round}`,
      ).toEqual([]);

      const fork = ForkedSchema.parse(await home.runJson(['snapshot', 'fork', first.id, '--wait'])).sessionId;
      expect(differences(before, await describeTree(fork)), `the fork, round ${round}`).toEqual([]);
      const same = await take(fork);
      expect(same.newBytes, `equal trees share everything, round ${round}`).toBe(0);
      const none = await home.runJson(['snapshot', 'diff', first.id, same.id]);
      expect(DiffSchema.parse(none).changes, `equal trees, round ${round}`).toEqual([]);
      await deed(fork, 'edit', String(seed + round + 7));
      await take(fork);
      await home.runOk(['session', 'reset', fork]);
      expect(differences(before, await describeTree(source)), `the source, round ${round}`).toEqual([]);
      await home.runOk(['session', 'delete', fork, '--force']);

      await deed(source, 'edit', String(seed + round + 1_000_000));
      const edited = await describeTree(source);
      const second = await take(source);
      const { changes } = DiffSchema.parse(await home.runJson(['snapshot', 'diff', first.id, second.id]));
      const told = changes.flatMap(({ path, oldPath }) => [
        path,
        ...(oldPath === undefined ? [] : [oldPath]),
      ]);
      expect(told.map(hexOf).sort(), `what differs, round ${round}`).toEqual(changedPaths(before, edited));

      await home.runOk(['snapshot', 'restore', source, first.id, '--cancel']);
      expect(differences(before, await describeTree(source)), `back, round ${round}`).toEqual([]);
      await home.runOk(['snapshot', 'restore', source, second.id, '--cancel']);
      expect(differences(edited, await describeTree(source)), `and forth, round ${round}`).toEqual([]);
      // With everything that was taken and deleted meanwhile.
      await home.runOk(['gc']);
      for (const { id } of [first, second]) await home.runOk(['snapshot', 'verify', id]);
    }
  },
);

test('an unreadable file with several hard links does not count as changed', async () => {
  const made = await home.runJson(['session', 'create', 'trees', '--name', 'closed']);
  const session = CreatedSchema.parse(made).session.id;
  const files = 'mkdir p q; echo closed > p/file; ln p/file q/file; chmod 000 p/file';
  await home.runOk(['exec', session, '--', 'sh', '-c', files]);
  const before = await describeTree(session);
  for (const created of [true, false]) expect(await take(session)).toMatchObject({ created, frozenMs: 0 });
  expect(differences(before, await describeTree(session))).toEqual([]);
});
