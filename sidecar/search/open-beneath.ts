import { constants, fstatSync, openSync } from 'node:fs';
import { Directory, isPathError } from '../files/directory.ts';
import { OpenFile, readFully } from '../files/open-file.ts';
import { O_PATH } from '../files/resolver.ts';

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
const SLASH = 0x2f;

/** Parses a path such as `./a/b` as ripgrep prints it. Null if it leads out of the folder. */
export function parseRelativePath(path: Buffer): Buffer[] | null {
  const names: Buffer[] = [];
  for (let from = 0; from <= path.length;) {
    const slash = path.indexOf(SLASH, from);
    const end = slash === -1 ? path.length : slash;
    const name = path.subarray(from, end);
    if (name.equals(PARENT)) return null;
    if (name.length > 0 && !name.equals(HERE)) names.push(name);
    from = end + 1;
  }
  return names.length === 0 || path[0] === SLASH ? null : names;
}
const HERE = Buffer.from('.');
const PARENT = Buffer.from('..');

/** The regular file at a path, with no link followed and without blocking. Null if there is none. */
export function openBeneath(root: Directory, names: readonly Buffer[]): OpenFile | null {
  let at = Directory.fromFd(openSync(root.selfPath, O_PATH | O_DIRECTORY));
  try {
    const last = names.at(-1);
    if (last === undefined) return null;
    for (const name of names.slice(0, -1)) {
      const next = Directory.fromFd(openSync(at.pathOf(name), O_PATH | O_DIRECTORY | O_NOFOLLOW));
      at.close();
      at = next;
    }
    const fd = openSync(at.pathOf(last), O_PATH | O_NOFOLLOW);
    using named = new OpenFile(fd);
    if (!fstatSync(fd).isFile()) return null;
    return new OpenFile(openSync(`/proc/self/fd/${named.fd}`, O_RDONLY | O_NONBLOCK));
  } catch (error) {
    if (isPathError(error)) return null;
    throw error;
  } finally {
    at.close();
  }
}

/**
 * True if the file has these bytes at the offset. This proves that a line which ripgrep read by path is in the
 * workspace.
 */
export function hasBytesAt(file: OpenFile, offset: number, bytes: Buffer): boolean {
  const there = Buffer.alloc(bytes.length);
  return readFully(file.fd, there, offset) === bytes.length && there.equals(bytes);
}
