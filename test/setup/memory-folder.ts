import { accessSync, constants, statfsSync } from 'node:fs';

const FOLDER = '/dev/shm';
/** The unit tests need far less at a time; a container may have 64 MiB only. */
const MIN_BYTES = 2 ** 30;

/**
 * The environment that lets temporary folders be in memory, where the system has room for them: most unit tests open a
 * database of their own, and would wait for the disk. Empty elsewhere.
 */
export function memoryFolder(): Record<string, string> {
  try {
    accessSync(FOLDER, constants.W_OK);
    const { bavail, bsize } = statfsSync(FOLDER);
    return bavail * bsize < MIN_BYTES ? {} : { TMPDIR: FOLDER };
  } catch {
    return {};
  }
}
