import { HoldfastError } from '../../../protocol/errors.ts';
import { type DirectoryEntry, parseRoot, type TreeEntry } from '../../../snapshot-format/entries.ts';
import { isMissing } from '../../../snapshot-format/missing-entry.ts';
import { type Hash, OBJECT_KINDS, type ObjectReader } from '../../../snapshot-format/objects.ts';
import { findChild } from '../compare/find-entry.ts';

/** As many links as the kernel follows. */
const MOST_LINKS = 40;
/** The workspace's name in the agent's root, where absolute links begin. */
const WORKSPACE_NAME = Buffer.from('workspace');
const DOT = Buffer.from('.');
const DOTS = Buffer.from('..');
const SLASH = 0x2f;

/**
 * What a path means in a tree, as it would to the agent: links on the way are followed, the last one with `follow`. `text` is the
 * path as it was asked for. Errors: the `file_*` codes of a live workspace.
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
  /** Folders on the way; empty: in the agent's root, which holds nothing but the workspace. */
  let way: DirectoryEntry[] = [top];
  let links = 0;
  for (let name = todo.pop(); name !== undefined; name = todo.pop()) {
    if (name.length === 0 || name.equals(DOT)) continue;
    if (name.equals(DOTS)) {
      way.pop();
      continue;
    }
    const here = way.at(-1);
    if (here === undefined) {
      if (!name.equals(WORKSPACE_NAME)) throw outside(text);
      way = [top];
      continue;
    }
    const found = await findChild(reader, here, name);
    if (found === null) throw new HoldfastError('file_not_found', `There is no ${text} in the snapshot`);
    if (isMissing(found)) throw lacking(text);
    const isLast = todo.length === 0;
    if (found.type === 'directory') way.push(found);
    else if (found.type === 'symlink' && (!isLast || follow)) {
      links += 1;
      if (links > MOST_LINKS) {
        throw new HoldfastError('file_unavailable', `${text} cannot be followed`, {
          why: 'it leads through too many links',
        });
      }
      if (found.target[0] === SLASH) way = [];
      todo.push(...namesIn(found.target).reverse());
    } else if (isLast) return found;
    else {
      throw new HoldfastError(
        'file_not_a_directory',
        `${text} is not a folder, or leads through something that is none`,
      );
    }
  }
  const folder = way.at(-1);
  if (folder === undefined) throw outside(text);
  return folder;
}

function namesIn(target: Buffer): Buffer[] {
  return target
    .toString('latin1')
    .split('/')
    .map((name) => Buffer.from(name, 'latin1'));
}

/** The file was there when the snapshot was taken. */
function lacking(text: string): HoldfastError {
  return new HoldfastError('file_unavailable', `The snapshot does not have ${text}`, {
    why: 'the file could not be read when the snapshot was taken',
    next: 'see whether an earlier snapshot has it',
  });
}

function outside(text: string): HoldfastError {
  return new HoldfastError('file_not_found', `There is no ${text} in the snapshot`, {
    why: 'it leads out of the workspace',
  });
}
