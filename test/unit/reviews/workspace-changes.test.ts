import { createHash } from 'node:crypto';
import { lstatSync, mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { formatPath } from '../../../protocol/paths.ts';
import { BufferPool } from '../../../protocol/wire/buffer-pool.ts';
import { filesHandlers } from '../../../sidecar/files/handlers.ts';
import { WorkspaceFiles } from '../../../sidecar/files/workspace-files.ts';
import { type Item, WorkspaceChanges } from '../../../supervisor/reviews/workspace-changes.ts';
import { temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

const file = (text: string, mode = 0o644): Item => ({ type: 'file', bytes: Buffer.from(text), mode });
const link = (target: string): Item => ({ type: 'symlink', target: Buffer.from(target) });
const path = [Buffer.from('deep'), Buffer.from('one')];

/** A workspace behind the real calls for files. With `calls`, the supervisor dies before the next one. */
function workspace() {
  const folder = temporaryDirectory();
  const files = new WorkspaceFiles({ workspace: folder, control: temporaryDirectory(), withoutNative: true });
  onTestFinished(() => files.close());
  const handlers = filesHandlers(files, new BufferPool(), new Promise(() => undefined));
  let left = Infinity;
  const call = async (method: keyof typeof handlers, params: never, { bytes = Buffer.alloc(0) } = {}) => {
    left -= 1;
    if (left < 0) throw new Error('killed');
    const context = { signal: new AbortController().signal, bytes, releaseBytes: () => undefined };
    const answer: unknown = await handlers[method](params, {
      ...context,
      progress: () => undefined,
    } as never);
    const isWithBytes = typeof answer === 'object' && answer !== null && 'bytes' in answer;
    return isWithBytes ? { ...answer, release: () => undefined } : { result: answer, bytes: Buffer.alloc(0) };
  };
  const connections = {
    use: (_id: string, _kind: string, _read: boolean, act: (one: unknown) => unknown) => act({ call }),
  };
  const changes = new WorkspaceChanges(connections as never);
  return { folder, changes, live: (calls: number) => (left = calls) };
}

function itemAt(folder: string): Item {
  const at = join(folder, 'deep/one');
  const status = lstatSync(at, { throwIfNoEntry: false });
  if (status === undefined) return null;
  if (status.isSymbolicLink()) return link(readlinkSync(at));
  return { type: 'file', bytes: readFileSync(at), mode: status.mode & 0o777 };
}

test.each([
  ['another mode and content', file('one\n'), file('two\n', 0o755)],
  ['another mode', file('one\n', 0o755), file('one\n')],
  ['a link', file('one\n'), link('elsewhere')],
  ['a file', link('elsewhere'), file('one\n')],
  ['another link', link('elsewhere'), link('here')],
] as const)(
  'a supervisor that dies while it writes %s leaves the one or the other',
  async (_what, from, to) => {
    for (let calls = 0; ; calls += 1) {
      const { folder, changes, live } = workspace();
      await changes.apply('s', { path, from: null, to: from });
      expect(itemAt(folder)).toEqual(from);
      live(calls);
      const isDone = await changes.apply('s', { path, from, to }).then(
        () => true,
        () => false,
      );
      expect([from, to]).toContainEqual(itemAt(folder));
      live(Infinity);
      await changes.apply('s', { path, from, to });
      expect(itemAt(folder)).toEqual(to);
      expect(readdirSync(join(folder, 'deep'))).toEqual(['one']);
      if (isDone) break;
      expect(calls).toBeLessThan(50);
    }
  },
);

test('a folder of the agent at the name of the new entry keeps nothing from being replaced', async () => {
  const { folder, changes } = workspace();
  await changes.apply('s', { path, from: null, to: file('one\n', 0o755) });
  const name = `.holdfast-${createHash('sha256').update(formatPath(path)).digest('hex').slice(0, 24)}`;
  mkdirSync(join(folder, 'deep', name, 'full'), { recursive: true });
  await changes.apply('s', { path, from: file('one\n', 0o755), to: file('one\n') });
  expect(itemAt(folder)).toEqual(file('one\n'));
  expect(readdirSync(join(folder, 'deep')).toSorted()).toEqual([name, 'one']);
});

test('what somebody saves meanwhile is not replaced', async () => {
  const { folder, changes } = workspace();
  mkdirSync(join(folder, 'deep'));
  writeFileSync(join(folder, 'deep/one'), 'mine\n');
  await expect(changes.apply('s', { path, from: file('one\n'), to: link('x') })).rejects.toMatchObject({
    code: 'conflict',
  });
  expect(itemAt(folder)).toEqual(file('mine\n', lstatSync(join(folder, 'deep/one')).mode & 0o777));
  expect(readdirSync(join(folder, 'deep'))).toEqual(['one']);
});
