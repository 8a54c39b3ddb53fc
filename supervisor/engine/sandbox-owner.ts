import type { Engine } from './port.ts';

/** The uid and gid that a new sandbox runs as. `allocateUid` is asked where each may have one of its own. */
export function sandboxOwner(
  engine: Pick<Engine, 'capabilities'>,
  allocateUid: () => number,
): { uid: number; gid: number } {
  const uid = process.getuid?.() ?? 1000;
  // With a remote engine, the user of the image is the one with a passwd line.
  if (!engine.capabilities().localPaths) return { uid: 1000, gid: 1000 };
  if (uid !== 0) return { uid, gid: process.getgid?.() ?? uid };
  const own = allocateUid();
  return { uid: own, gid: own };
}
