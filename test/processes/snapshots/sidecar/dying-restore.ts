// A process that restores and dies: DIRECTORY PACKS ROOT STEP. Prints how many changes it has made when it does not.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { SystemCalls } from '../../../../sidecar/snapshots/system-calls.ts';
import { MemoryStore } from '../../../fixtures/snapshots/memory-store.ts';
import { LocalWorkspace } from './local-workspace.ts';

const [directory = '', packs = '', root = '', step = ''] = process.argv.slice(2);
const last = Number(step);
let changes = 0;

/** Dies before the change of that number. */
function change(): void {
  changes += 1;
  if (changes === last) process.kill(process.pid, 'SIGKILL');
}

function dying(system: SystemCalls): SystemCalls {
  const change1 =
    <A extends unknown[]>(call: (...args: A) => void) =>
    (...args: A): void => {
      change();
      call(...args);
    };
  return {
    ...system,
    openAt: (at, name, flags, mode) => {
      // Whatever is made has a mode.
      if (mode !== undefined) change();
      return system.openAt(at, name, flags, mode);
    },
    setXattr: change1(system.setXattr),
    removeXattr: change1(system.removeXattr),
    setMtime: change1(system.setMtime),
    setMtimeByFd: change1(system.setMtimeByFd),
    setMtimeAt: change1(system.setMtimeAt),
    makeDirectoryAt: change1(system.makeDirectoryAt),
    makeNodeAt: change1(system.makeNodeAt),
    symlinkAt: change1(system.symlinkAt),
    linkAt: change1(system.linkAt),
    renameAt: change1(system.renameAt),
    unlinkAt: change1(system.unlinkAt),
    close: system.close,
  };
}

const store = new MemoryStore();
for (const name of readdirSync(packs)) await store.addPack(readFileSync(join(packs, name)));
using workspace = await LocalWorkspace.open(directory, store, dying);
await workspace.restore(root);
console.log(changes);
