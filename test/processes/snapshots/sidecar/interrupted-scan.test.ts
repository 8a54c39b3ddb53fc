import { execFileSync } from 'node:child_process';
import { closeSync, constants, mkdirSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Hash, ObjectKind } from '../../../../snapshot-format/objects.ts';
import { O_PATH } from '../../../../sidecar/files/resolver.ts';
import { CachedDirectory } from '../../../../sidecar/snapshots/cached-directory.ts';
import { TemporaryEntries } from '../../../../sidecar/files/temporary-entries.ts';
import { TemporaryChmods } from '../../../../sidecar/snapshots/temporary-chmods.ts';
import { NullSink } from '../../../../sidecar/snapshots/upload-queue.ts';
import { Scan } from '../../../../sidecar/snapshots/scan.ts';
import { loadSystemCalls } from '../../../../sidecar/snapshots/system-calls.ts';
import { temporaryDirectory } from '../../../fixtures/store/temporary-home.ts';

/** Takes so many objects and then no more. */
class Failing extends NullSink {
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

test('a scan that cannot continue at whatever object is followed by one that finds the right tree', async () => {
  const below = temporaryDirectory();
  const path = join(below, 'workspace');
  mkdirSync(path);
  const run = (script: string): string =>
    execFileSync('bash', ['-euc', script], { cwd: path, encoding: 'utf8' });
  run(
    'mkdir -p a/b/c/d e/f; for n in 1 2 3; do echo $n > a/b/c/d/$n; echo $n > a/$n; echo $n > e/f/$n; done',
  );
  const system = await loadSystemCalls();
  if (system === null) throw new Error('this machine has no native calls');
  const chmods = new TemporaryChmods(join(below, 'notes'));
  const temporaryEntries = new TemporaryEntries(below);
  const root = openSync(path, O_PATH | constants.O_DIRECTORY);
  const scan = async (known: CachedDirectory, sink: NullSink): Promise<string | undefined> => {
    const rest = {
      hardLinksBefore: null,
      filesBefore: null,
      budgetBytes: null,
      frozen: false,
      leaseTimeoutMs: 0,
      onWaiting: () => undefined,
      check: () => undefined,
    };
    const { root: hash } = await new Scan({
      system,
      chmods,
      temporaryEntries,
      root,
      baseline: known,
      sink,
      ...rest,
    }).run();
    return hash?.toString('hex');
  };
  const anew = (): CachedDirectory => new CachedDirectory(null, Buffer.alloc(0));
  try {
    const known = anew();
    await scan(known, new NullSink(new Set()));
    // The innermost file, one half way up, and one beside them.
    const objects = 3 + 6 + 1;
    for (let taken = 0; taken < objects; taken += 1) {
      run(`for name in a/b/c/d/1 a/2 e/f/3; do echo ${taken} more >> $name; done`);
      await expect(scan(known, new Failing(taken)), `after ${taken}`).rejects.toThrow('no more');
      const right = await scan(anew(), new NullSink(new Set()));
      expect(await scan(known, new NullSink(new Set())), `after ${taken}`).toBe(right);
    }
  } finally {
    closeSync(root);
  }
});
