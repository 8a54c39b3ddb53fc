import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { PROFILE_FILE } from '../project/profile-file.ts';
import { fromText, type RawPath, readable, toBytes } from '../project/raw-path.ts';
import type { ProjectOrigin } from '../protocol/deploy.ts';
import { HoldfastError } from '../protocol/errors.ts';
import { prefixOf } from './path-check.ts';
import type { CommittedEntry, Repository } from './repository.ts';

/**
 * The project's folder in the repository, with a slash at its end; empty for the top. The session's host says where it was, and another
 * machine is not believed: the folder that the person chose decides where it is in a project; otherwise the host's must be one.
 * `chosen`: an absolute folder in the repository. Errors: `conflict`, `protocol_error`.
 */
export async function projectPlace(
  { git, root }: Pick<Repository, 'git' | 'root'>,
  chosen: string,
  { origin, committed }: { origin: ProjectOrigin; committed: ReadonlyMap<RawPath, CommittedEntry> },
): Promise<RawPath> {
  const claimed = prefixOf({ origin, folder: '' });
  const isProject = async (prefix: RawPath): Promise<boolean> => {
    if (committed.has(prefix + PROFILE_FILE)) return true;
    if (root === null) return false;
    const onDisk = Buffer.concat([Buffer.from(join(root, '/')), toBytes(prefix + PROFILE_FILE)]);
    return (await lstat(onDisk).catch(() => null)) !== null;
  };
  const below = root === null ? '' : ((await git.in(chosen).ask(['rev-parse', '--show-prefix'])) ?? '');
  for (let at = fromText(below); ; at = at.slice(0, at.lastIndexOf('/', at.length - 2) + 1)) {
    if (await isProject(at)) {
      if (at === claimed) return at;
      throw otherProject(chosen, claimed, `that folder belongs to the project ${nameOf(at)}`);
    }
    if (at === '') break;
  }
  if (await isProject(claimed)) return claimed;
  throw otherProject(chosen, claimed, `the repository has no ${PROFILE_FILE} there`);
}

function otherProject(chosen: string, claimed: RawPath, why: string): HoldfastError {
  return new HoldfastError('conflict', `The session's project is not in ${chosen}`, {
    why: `its host says that it was ${nameOf(claimed)} of the repository, and ${why}`,
    next: 'name the folder that was deployed with --repository',
  });
}

function nameOf(prefix: RawPath): string {
  return prefix === '' ? 'the top folder' : JSON.stringify(readable(prefix.slice(0, -1)));
}
