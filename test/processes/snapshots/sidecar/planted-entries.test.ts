import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { Directory } from '../../../../sidecar/files/directory.ts';
import { TemporaryEntries } from '../../../../sidecar/files/temporary-entries.ts';
import type { SystemCalls } from '../../../../sidecar/snapshots/system-calls.ts';
import { temporaryDirectory } from '../../../fixtures/store/temporary-home.ts';
import { MemoryStore } from '../../../fixtures/snapshots/memory-store.ts';
import { LocalWorkspace } from './local-workspace.ts';

/** How names of ours begin, now and in earlier versions. */
const PREFIXES = [
  '.holdfast-write-restore-',
  '.holdfast-restore-',
  '.holdfast-write-',
  '.holdfast-removing-',
];
const PLANTED: readonly (readonly [what: string, make: (name: string) => string])[] = [
  ['a file', (name) => `echo x > ${name}`],
  ['a link', (name) => `ln -s /etc ${name}`],
  ['a FIFO', (name) => `mkfifo ${name}`],
  ['a socket', (name) => `python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('${name}')"`],
  ['a folder', (name) => `mkdir ${name}; echo x > ${name}/x; chmod 500 ${name}`],
];
const DESCRIBE = `find . -printf '%p %y %m %n %s %l\\n' | sort`;

function names(workspace: LocalWorkspace): string[] {
  return readdirSync(workspace.path).toSorted();
}

describe('what somebody planted under a name like ours', () => {
  test.for(PLANTED)('%s disables no restore, and is in snapshots like anything else', async ([, make]) => {
    using workspace = await LocalWorkspace.open(temporaryDirectory(), new MemoryStore());
    workspace.runScript('echo one > one; mkdir d; echo two > d/two');
    const { root: without } = await workspace.scan();
    const planted = PREFIXES.flatMap((prefix) => [`${prefix}q`, `${prefix}0123456789abcdef`]);
    workspace.runScript(planted.map(make).join('\n'));
    const before = workspace.runScript(DESCRIBE);
    const { root: withThem } = await workspace.scan(without);
    expect(withThem).not.toBe(without);

    workspace.runScript('echo other > one; rm -r d');
    await workspace.restore(withThem);
    expect(workspace.runScript(DESCRIBE)).toBe(before);
    workspace.runScript('echo other > one');
    await workspace.restore(withThem, { path: '/workspace/one' });
    expect(workspace.runScript(DESCRIBE)).toBe(before);

    await workspace.restore(without);
    expect(names(workspace)).toEqual(['d', 'one']);
    await workspace.restore(withThem);
    expect(workspace.runScript(DESCRIBE)).toBe(before);
  });
});

describe('what a restore that was killed has left', () => {
  interface Left {
    readonly below: string;
    readonly own: TemporaryEntries;
    readonly root: Directory;
    readonly name: string;
    readonly path: string;
  }

  function scene(): Left {
    const below = temporaryDirectory();
    mkdirSync(join(below, 'workspace'));
    const own = new TemporaryEntries(join(below, 'control'));
    const root = Directory.open(join(below, 'workspace'));
    const name = own.newName('restore').toString();
    return { below, own, root, name, path: join(below, 'workspace', name) };
  }
  const note = ({ own, root, name }: Left, path?: string): void =>
    own.register(
      Buffer.from(name),
      root,
      path === undefined ? {} : { inode: String(statSync(path, { bigint: true }).ino) },
    );

  /** What is in the workspace once the next sidecar is there. */
  async function next({ below, root }: Left): Promise<string[]> {
    root.close();
    using workspace = await LocalWorkspace.open(below, new MemoryStore());
    expect(readdirSync(join(below, 'control', 'entries'))).toEqual([]);
    expect((await workspace.scan()).complete).toBe(true);
    return names(workspace);
  }

  test('is removed by the next sidecar, at whatever step it was', async () => {
    const noted = scene();
    note(noted);
    expect(await next(noted)).toEqual([]);

    const made = scene();
    note(made);
    mkdirSync(made.path);
    expect(await next(made)).toEqual([]);

    const filled = scene();
    mkdirSync(join(filled.path, 'deep/er'), { recursive: true });
    writeFileSync(join(filled.path, 'deep/er/f'), 'x');
    note(filled, filled.path);
    execFileSync('chmod', ['-R', '000', filled.path]);
    execFileSync('chmod', ['000', join(filled.below, 'workspace')]);
    root000(filled);
    expect(await next(filled)).toEqual([]);

    const half = scene();
    note(half);
    mkdirSync(half.path);
    writeFileSync(join(half.below, 'control', 'entries', `${half.name}.new`), '{"within":');
    expect(await next(half)).toEqual([]);
  });

  /** Whoever is no superuser could not list it either, as the test goes on. */
  function root000({ below }: Left): void {
    if (process.getuid?.() !== 0) execFileSync('chmod', ['700', join(below, 'workspace')]);
  }

  test('is let be where it is not what was noted', async () => {
    const filled = scene();
    note(filled);
    mkdirSync(filled.path);
    writeFileSync(join(filled.path, 'f'), 'x');
    expect(await next(filled)).toEqual([filled.name]);

    for (const make of ['echo x >', 'ln -s .. ', 'mkfifo', 'mkdir']) {
      const replaced = scene();
      mkdirSync(replaced.path);
      note(replaced, replaced.path);
      renameSync(replaced.path, join(replaced.below, 'workspace', 'moved'));
      execFileSync('bash', ['-euc', `${make} ${replaced.path}`]);
      expect(await next(replaced)).toEqual([replaced.name, 'moved']);
    }
    // Of a workspace that is another by now.
    const other = scene();
    mkdirSync(other.path);
    other.own.register(Buffer.from(other.name), { fd: 0 });
    expect(await next(other)).toEqual([other.name]);
  });

  test('is in no snapshot while it is there, and anything else of its name is', async () => {
    const left = scene();
    using workspace = await LocalWorkspace.open(left.below, new MemoryStore());
    workspace.runScript('echo a > a; mkdir b');
    const { root: before } = await workspace.scan();
    mkdirSync(left.path);
    note(left, left.path);
    workspace.runScript('touch -r a .');
    expect(await workspace.scan(before)).toMatchObject({ files: 1, directories: 1 });
    // The same name in another folder, and another folder of the same name.
    mkdirSync(join(workspace.path, 'b', left.name));
    expect(await workspace.scan(before)).toMatchObject({ directories: 2 });
    renameSync(left.path, join(workspace.path, 'moved'));
    expect(await workspace.scan(before)).toMatchObject({ directories: 3 });
    mkdirSync(left.path);
    expect(await workspace.scan(before)).toMatchObject({ directories: 4 });
    left.own.unregister(Buffer.from(left.name));
    expect(await workspace.scan(before)).toMatchObject({ directories: 4 });
    left.root.close();
  });
});

test('the folder of a restore under way is replaced: what was put in its place stays', async () => {
  const below = temporaryDirectory();
  const store = new MemoryStore();
  const path = join(below, 'workspace');
  const agent = { acts: false };
  const staged = (): string | undefined =>
    readdirSync(path).find((name) => name.startsWith('.holdfast-restore-'));
  const around = (system: SystemCalls): SystemCalls => ({
    ...system,
    renameAt: (...args) => {
      const name = agent.acts ? staged() : undefined;
      if (name !== undefined) {
        agent.acts = false;
        renameSync(join(path, name), join(path, 'taken'));
        mkdirSync(join(path, name));
        writeFileSync(join(path, name, 'theirs'), 'theirs');
      }
      system.renameAt(...args);
    },
  });
  using workspace = await LocalWorkspace.open(below, store, around);
  workspace.runScript('mkdir d e; for n in 1 2 3; do echo $n > d/$n; done');
  const { root } = await workspace.scan();
  workspace.runScript('rm -r d; mkdir f; echo f > f/f');
  agent.acts = true;
  await workspace.restore(root);
  expect(agent.acts).toBe(false);
  const [theirs = '', ...rest] = names(workspace);
  expect(rest).toEqual(['d', 'e', 'taken']);
  expect(readFileSync(join(path, theirs, 'theirs'), 'utf8')).toBe('theirs');
  expect(readdirSync(join(path, 'd'))).toEqual(['1', '2', '3']);
  // It was ours: nothing of what it held is left.
  expect(readdirSync(join(path, 'taken'))).toEqual([]);
  expect(readdirSync(join(below, 'control', 'entries'))).toEqual([]);
  await workspace.restore(root);
  expect(names(workspace)).toEqual(['d', 'e']);
});

test('a name that somebody has already is not used', async () => {
  const below = temporaryDirectory();
  using workspace = await LocalWorkspace.open(below, new MemoryStore(), (system) => {
    let isFirst = true;
    return {
      ...system,
      makeDirectoryAt: (at, name, mode) => {
        // Somebody was a moment faster.
        if (isFirst) writeFileSync(join(below, 'workspace', name.toString()), 'theirs');
        isFirst = false;
        system.makeDirectoryAt(at, name, mode);
      },
    };
  });
  workspace.runScript('mkdir d; echo x > d/x');
  const { root } = await workspace.scan();
  workspace.runScript('rm -r d');
  await workspace.restore(root);
  const [theirs = '', ...rest] = names(workspace);
  expect(rest).toEqual(['d']);
  expect(readFileSync(join(workspace.path, theirs), 'utf8')).toBe('theirs');
});
