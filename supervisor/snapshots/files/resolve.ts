import { HoldfastError } from '../../../protocol/errors.ts';
import { type DirectoryEntry, parseRoot, type TreeEntry } from '../../../snapshot-format/entries.ts';
import { isMissing } from '../../../snapshot-format/missing-entry.ts';
import { type Hash, OBJECT_KINDS, type ObjectReader } from '../../../snapshot-format/objects.ts';
import { findChild } from '../compare/find-entry.ts';

/** The kernel's limit on symbolic links in one path. */
const MAX_LINKS = 40;
/** The name of the workspace in the agent's root directory, where absolute links begin. */
const WORKSPACE_NAME = Buffer.from('workspace');
const DOT = Buffer.from('.');
const DOTS = Buffer.from('..');
const SLASH = 0x2f;

/**
 * Resolves a path in a tree as the agent's kernel would: symbolic links are followed, the last one only with `follow`.
 * `text` is the path as requested. Errors: the `file_*` codes of a live workspace.
 */
export async function resolveEntry(
  reader: ObjectReader,
  root: Hash,
  path: readonly Buffer[],
  text: string,
  follow: boolean,
): Promise<TreeEntry> {
  const top = parseRoot(await reader.read(root, OBJECT_KINDS.root));
  const todo = [...path].reverse();
  /** The directories on the way; empty: the agent's root directory, which contains only the workspace. */
  let parents: DirectoryEntry[] = [top];
  let links = 0;
  for (let name = todo.pop(); name !== undefined; name = todo.pop()) {
    if (name.length === 0 || name.equals(DOT)) continue;
    if (name.equals(DOTS)) {
      parents.pop();
      continue;
    }
    const here = parents.at(-1);
    if (here === undefined) {
      if (!name.equals(WORKSPACE_NAME)) throw outside(text);
      parents = [top];
      continue;
    }
    const found = await findChild(reader, here, name);
    if (found === null) throw new HoldfastError('file_not_found', `There is no ${text} in the snapshot`);
    if (isMissing(found)) throw missingFile(text);
    const isLast = todo.length === 0;
    if (found.type === 'directory') parents.push(found);
    else if (found.type === 'symlink' && (!isLast || follow)) {
      links += 1;
      if (links > MAX_LINKS) {
        throw new HoldfastError('file_unavailable', `${text} cannot be followed`, {
          why: 'it leads through too many symbolic links',
        });
      }
      if (found.target[0] === SLASH) parents = [];
      todo.push(...namesIn(found.target).reverse());
    } else if (isLast) return found;
    else {
      throw new HoldfastError(
        'file_not_a_directory',
        `${text} is not a folder, or a part of its path is not`,
      );
    }
  }
  const folder = parents.at(-1);
  if (folder === undefined) throw outside(text);
  return folder;
}

function namesIn(target: Buffer): Buffer[] {
  return target
    .toString('latin1')
    .split('/')
    .map((name) => Buffer.from(name, 'latin1'));
}

/** The error for a file that existed but could not be read into the snapshot. */
function missingFile(text: string): HoldfastError {
  return new HoldfastError('file_unavailable', `The snapshot does not contain ${text}`, {
    why: 'the file could not be read when the snapshot was created',
    next: 'look for the file in an earlier snapshot',
  });
}

function outside(text: string): HoldfastError {
  return new HoldfastError('file_not_found', `There is no ${text} in the snapshot`, {
    why: 'it leads out of the workspace',
  });
}
