import { randomBytes } from 'node:crypto';
import { closeSync, constants, fchmodSync, openSync, renameSync, unlinkSync, writeSync } from 'node:fs';
import { errnoOf, type Directory } from '../files/directory.ts';
import { openOwned } from '../home/prepare.ts';

const NAME = 'manifest.json';

/**
 * Writes the agent's copy of the manifest into the run directory, in one step. The agent can write there too: whatever has the name is
 * replaced and never opened, a link included; a directory is moved aside. The next sidecar removes that, and a copy that was being written when this one was killed. What the agent does to
 * the copy harms nobody: it is for its information.
 */
export function writeManifestCopy(run: string, bytes: Uint8Array): void {
  using directory = openOwned(run);
  const temporary = `manifest-${randomBytes(8).toString('hex')}.tmp`;
  const { O_CREAT, O_EXCL, O_NOFOLLOW, O_WRONLY } = constants;
  const fd = openSync(directory.path(temporary), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    try {
      for (let written = 0; written < bytes.length;) written += writeSync(fd, bytes, written);
      fchmodSync(fd, 0o444);
    } finally {
      closeSync(fd);
    }
    publish(directory, temporary);
  } catch (error) {
    remove(directory, temporary);
    throw error;
  }
}

function publish(directory: Directory, temporary: string): void {
  const rename = (): void => renameSync(directory.path(temporary), directory.path(NAME));
  try {
    rename();
  } catch (error) {
    const code = errnoOf(error);
    if (code !== 'EISDIR' && code !== 'ENOTEMPTY' && code !== 'EEXIST') throw error;
    // `RunDirectory.sweep` removes it.
    renameSync(directory.path(NAME), directory.path(`gone-${randomBytes(8).toString('hex')}`));
    rename();
  }
}

/** The agent may have removed it, or put a directory there. */
function remove(directory: Directory, name: string): void {
  try {
    unlinkSync(directory.path(name));
  } catch (error) {
    if (errnoOf(error) === undefined) throw error;
  }
}
