import { execFileSync } from 'node:child_process';
import { closeSync, constants, mkdirSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Hash, ObjectKind } from '../../../../snapshot-format/objects.ts';
import { O_PATH } from '../../../../sidecar/files/resolver.ts';
import { Folder } from '../../../../sidecar/snapshots/folder.ts';
import { OwnEntries } from '../../../../sidecar/files/own-entries.ts';
import { LentModes } from '../../../../sidecar/snapshots/lent-modes.ts';
import { Nowhere } from '../../../../sidecar/snapshots/outbox.ts';
import { Scan } from '../../../../sidecar/snapshots/scan.ts';
import { loadSystem } from '../../../../sidecar/snapshots/system.ts';
import { temporaryDirectory } from '../../store/temporary-home.ts';

/** Takes so many objects and then no more. */
class Failing extends Nowhere {
  left: number;
  constructor(left: number) {
    super(new Set());
    this.left = left;
  }

  override add(kind: ObjectKind, body: Buffer): Hash {
    this.left -= 1;
    if (this.left < 0) throw new Error('no more');
    return super.add(kind, body);
  }
}

test('a scan that cannot go on at whatever object is followed by one that finds the right tree', async () => {
  const below = temporaryDirectory();
  const path = join(below, 'workspace');
  mkdirSync(path);
  const run = (script: string): string =>
    execFileSync('bash', ['-euc', script], { cwd: path, encoding: 'utf8' });
  run(
    'mkdir -p a/b/c/d e/f; for n in 1 2 3; do echo $n > a/b/c/d/$n; echo $n > a/$n; echo $n > e/f/$n; done',
  );
  const system = await loadSystem();
  if (system === null) throw new Error('this machine has no native calls');
  const lent = new LentModes(join(below, 'notes'));
  const own = new OwnEntries(below);
  const root = openSync(path, O_PATH | constants.O_DIRECTORY);
  const scan = async (known: Folder, outlet: Nowhere): Promise<string | undefined> => {
    const rest = {
      linkedBefore: null,
      filesBefore: null,
      budgetBytes: null,
      frozen: false,
      patienceMs: 0,
      waiting: () => undefined,
      check: () => undefined,
    };
    const { root: hash } = await new Scan({ system, lent, own, root, known, outlet, ...rest }).run();
    return hash?.toString('hex');
  };
  const anew = (): Folder => new Folder(null, Buffer.alloc(0));
  try {
    const known = anew();
    await scan(known, new Nowhere(new Set()));
    // The innermost file, one half way up, and one beside them.
    const objects = 3 + 6 + 1;
    for (let taken = 0; taken < objects; taken += 1) {
      run(`for name in a/b/c/d/1 a/2 e/f/3; do echo ${taken} more >> $name; done`);
      await expect(scan(known, new Failing(taken)), `after ${taken}`).rejects.toThrow('no more');
      const right = await scan(anew(), new Nowhere(new Set()));
      expect(await scan(known, new Nowhere(new Set())), `after ${taken}`).toBe(right);
    }
  } finally {
    closeSync(root);
  }
});
