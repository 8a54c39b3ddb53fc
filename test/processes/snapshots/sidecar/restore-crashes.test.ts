import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { temporaryDirectory } from '../../../fixtures/store/temporary-home.ts';
import { MemoryStore } from '../../../fixtures/snapshots/memory-store.ts';
import { LocalWorkspace } from './local-workspace.ts';
import { soakCount } from '../../../setup/run-length.ts';

const PROGRAM = join(import.meta.dirname, 'dying-restore.ts');
/** Everything that a restore does: what is made, replaced, removed, moved, linked, given other attributes. */
const OLD = `
  mkdir -p stays/deep gone/sub type-file closed new-mode
  echo same > stays/same; echo old > stays/deep/changed; echo x > gone/sub/x; echo linked > one; ln one two; ln one stays/three
  echo f > type-file/f; echo d > type-dir; ln -s one link; mkfifo pipe; echo a > closed/a; chmod 500 closed
  echo touched > touched; chmod 4711 touched; truncate -s 1M holes; printf x | dd of=holes bs=1 seek=500000 conv=notrunc status=none
  setfattr -n user.a -v 1 touched 2>/dev/null || true
  touch -d '2001-02-03 04:05:06.789' touched stays/deep stays gone link -h; touch -d '2002-01-01' .
`;
const EDITED = `
  echo new > stays/deep/changed; rm -r gone; mkdir -p added/deep; echo y > added/deep/y; rm two; echo other > two
  rm -r type-file; echo now > type-file; rm type-dir; mkdir type-dir; echo in > type-dir/in; ln -sf two link; rm pipe; mkdir pipe
  chmod 700 closed; rm closed/a; echo b > closed/b; chmod 500 closed; chmod 644 touched; rm holes; chmod 700 new-mode
`;
/** All that there is, as find sees it, and the content. */
const DESCRIBE = `
  find . -printf '%p %y %m %n %s %T@ %l\\n' | sort; find . -type f | sort | xargs -d '\\n' sha256sum
`;

function describe(workspace: LocalWorkspace): string {
  return workspace.runScript(DESCRIBE);
}

test(
  'killed before whatever change, a restore that is repeated makes all of it right',
  async () => {
    const below = temporaryDirectory();
    const store = new MemoryStore();
    using workspace = await LocalWorkspace.open(below, store);
    workspace.runScript(OLD);
    const wanted = describe(workspace);
    const { root } = await workspace.scan();
    const packs = join(below, 'packs');
    mkdirSync(packs);
    store.packs().forEach((bytes, index) => writeFileSync(join(packs, String(index)), bytes));

    const restore = (step: number): ReturnType<typeof spawnSync> =>
      spawnSync(process.execPath, [PROGRAM, below, packs, root, String(step)], { encoding: 'utf8' });

    workspace.runScript(EDITED);
    const whole = restore(0);
    expect(whole.stderr).toBe('');
    expect(describe(workspace)).toBe(wanted);
    const changes = Number(whole.stdout);
    expect(changes).toBeGreaterThan(30);

    const every = Math.ceil(changes / soakCount(6, changes));
    for (let step = 1; step <= changes; step += every) {
      workspace.runScript(EDITED);
      expect(restore(step).signal, `step ${step}`).toBe('SIGKILL');
      {
        // A sidecar that only comes, and is asked for nothing.
        using next = await LocalWorkspace.open(below, store);
        expect(readdirSync(next.path).filter((name) => name.startsWith('.holdfast'))).toEqual([]);
        expect(readdirSync(join(below, 'control', 'entries'))).toEqual([]);
      }
      const again = restore(0);
      expect(again.stderr, `step ${step}`).toBe('');
      expect(describe(workspace), `step ${step}`).toBe(wanted);
      expect(readdirSync(workspace.path).filter((name) => name.startsWith('.holdfast'))).toEqual([]);
      expect(readdirSync(join(below, 'control', 'snapshots'))).toEqual([]);
    }
  },
  soakCount(600_000, 3_600_000),
);

test('a sidecar that died with a mode lent is made good by the next one', async () => {
  const below = temporaryDirectory();
  const store = new MemoryStore();
  const program = `
    import { LocalWorkspace } from ${JSON.stringify(join(import.meta.dirname, 'local-workspace.ts'))};
    import { MemoryStore } from ${JSON.stringify(join(import.meta.dirname, '../../../fixtures/snapshots/memory-store.ts'))};
    const workspace = await LocalWorkspace.open(${JSON.stringify(below)}, new MemoryStore(), (system) => ({
      ...system,
      readDirents: () => process.kill(process.pid, 'SIGKILL') ? 0 : 0,
    }));
    await workspace.scan();
  `;
  {
    using first = await LocalWorkspace.open(below, store);
    first.runScript('chmod 000 .');
  }
  const dead = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' });
  expect(dead.signal).toBe('SIGKILL');
  const mode = (): string =>
    execFileSync('stat', ['-c', '%a', join(below, 'workspace')], { encoding: 'utf8' }).trim();
  expect(mode()).toBe('500');
  using next = await LocalWorkspace.open(below, store);
  expect(mode()).toBe('0');
  expect((await next.scan()).complete).toBe(true);
  expect(mode()).toBe('0');
  execFileSync('chmod', ['700', next.path]);
});
