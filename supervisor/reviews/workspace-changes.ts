import { createHash, randomBytes } from 'node:crypto';
import { HoldfastError } from '../../protocol/errors.ts';
import { FILE_CHUNK_BYTES } from '../../protocol/files.ts';
import { encodeLink, formatPath } from '../../protocol/paths.ts';
import type { FilesConnection } from '../workspace/files-connection.ts';
import type { FilesConnections } from '../workspace/files-connections.ts';
import type { PathSegments } from '../snapshots/compare/differences.ts';

/** Larger files are not written back; a restore of the path does that. */
export const MAX_REPLACED_BYTES = 64 * 2 ** 20;

/** What is at a path of the workspace, as far as a review replaces it. Null: nothing. */
export type Item =
  | { readonly type: 'file'; readonly bytes: Buffer; readonly mode: number }
  | { readonly type: 'symlink'; readonly target: Buffer }
  | { readonly type: 'directory' }
  | null;

/** At `path` there has to be `from`, and there will be `to`. */
export interface Replacement {
  readonly path: PathSegments;
  readonly from: Item;
  readonly to: Item;
}

/** Mode bits that the methods for files keep. */
const MODE_BITS = 0o777;

/** Replaces files of a workspace, each only if nobody has changed it, through the calls that a save uses. */
export class WorkspaceChanges {
  readonly #connections: Pick<FilesConnections, 'use'>;

  constructor(connections: Pick<FilesConnections, 'use'>) {
    this.#connections = connections;
  }

  /** Whether the path still has `from`, or has `to` already. Errors: `conflict`, those of the sidecar. */
  async check(sessionId: string, replacement: Replacement): Promise<void> {
    await this.#connections.use(sessionId, 'bulk', true, (files) => currentState(files, replacement));
  }

  /** What is there already stays, so that this can be repeated after a crash. Errors: as `check`. */
  async apply(sessionId: string, replacement: Replacement): Promise<void> {
    await this.#connections.use(sessionId, 'bulk', false, async (files) => {
      const state = await currentState(files, replacement);
      if (!state.isDone) await replace(files, replacement, state.version);
    });
  }
}

interface CurrentState {
  readonly isDone: boolean;
  /** Of the file that is there. */
  readonly version: string | null;
}

async function currentState(files: FilesConnection, { path, from, to }: Replacement): Promise<CurrentState> {
  const { item, version } = await read(files, path, [from, to]);
  if (isSame(item, to)) return { isDone: true, version };
  if (isSame(item, from)) return { isDone: false, version };
  throw new HoldfastError('conflict', `${formatPath(path)} was not changed`, {
    why: 'it has changed since the review was opened',
    next: 'open the review again, and decide about what is there now',
    details: { path: formatPath(path) },
  });
}

/** What is at the path. A file that has the size of none of the expected ones is not read. */
async function read(
  files: FilesConnection,
  path: PathSegments,
  expected: readonly Item[],
): Promise<{ item: Item | 'other'; version: string | null }> {
  const at = formatPath(path);
  try {
    const { result: stat } = await files.call('files/stat', { path: at, follow: false });
    switch (stat.type) {
      case 'symlink': {
        const target = expected.find(
          (one) => one?.type === 'symlink' && encodeLink(one.target) === stat.link,
        );
        return { item: target ?? 'other', version: null };
      }
      case 'directory':
        return { item: { type: 'directory' }, version: null };
      case 'file':
        break;
      default:
        return { item: 'other', version: null };
    }
    if (!expected.some((one) => one?.type === 'file' && one.bytes.length === stat.size))
      return { item: 'other', version: null };
    const parts: Buffer[] = [];
    let version: string | null = null;
    for (let offset = 0; ; offset += FILE_CHUNK_BYTES) {
      const same: { ifVersion?: string } = version === null ? {} : { ifVersion: version };
      const { result, bytes, release } = await files.call('files/read', { path: at, offset, ...same });
      version = result.version;
      parts.push(Buffer.from(bytes));
      release();
      if (offset + bytes.length >= result.size || bytes.length === 0) break;
    }
    return { item: { type: 'file', bytes: Buffer.concat(parts), mode: stat.mode }, version };
  } catch (error) {
    const isGone =
      error instanceof HoldfastError &&
      (error.code === 'file_not_found' || error.code === 'file_not_a_directory');
    if (isGone) return { item: null, version: null };
    throw error;
  }
}

function isSame(one: Item | 'other', other: Item): boolean {
  if (one === 'other') return false;
  if (one === null || other === null) return one === other;
  if (one.type === 'file' && other.type === 'file') {
    return (one.mode & MODE_BITS) === (other.mode & MODE_BITS) && one.bytes.equals(other.bytes);
  }
  if (one.type === 'symlink' && other.type === 'symlink') return one.target.equals(other.target);
  return one.type === other.type;
}

async function replace(
  files: FilesConnection,
  { path, from, to }: Replacement,
  version: string | null,
): Promise<void> {
  const at = formatPath(path);
  const isRewrite =
    from?.type === 'file' && to?.type === 'file' && (from.mode & MODE_BITS) === (to.mode & MODE_BITS);
  if (isRewrite && version !== null) {
    await write(files, at, to, { ifVersion: version });
    return;
  }
  if (to === null) {
    if (from !== null) await files.call('files/delete', { path: at });
    return;
  }
  if (path.length > 1)
    await files.call('files/mkdir', { path: formatPath(path.slice(0, -1)), parents: true });
  const isFolder = from?.type === 'directory' || to.type === 'directory';
  if (from !== null && !isFolder) {
    await replaceEntry(files, { path, from, to });
    return;
  }
  // Only an empty folder can be deleted so: nothing is lost if the next line is not reached.
  if (from !== null) await files.call('files/delete', { path: at });
  await create(files, at, to);
}

/**
 * No call changes a mode, or makes a link of a file, so the new entry is made beside the old one and takes its name in one step.
 * What an attempt that was killed left there is found by its name, and goes.
 */
async function replaceEntry(
  files: FilesConnection,
  replacement: Replacement & { readonly to: NonNullable<Item> },
): Promise<void> {
  const { path, to } = replacement;
  const at = formatPath(path);
  const beside = await freeNameBeside(files, path);
  await create(files, beside, to);
  try {
    // Somebody may have saved the file while the other one was written.
    await currentState(files, replacement);
    await files.call('files/rename', { from: beside, to: at, overwrite: true });
  } catch (error) {
    await deleteIfThere(files, beside);
    throw error;
  }
}

/** The name that an earlier attempt used too. The agent may guess it and keep it: then another one. */
async function freeNameBeside(files: FilesConnection, path: PathSegments): Promise<string> {
  const named = (unique: string): string =>
    formatPath([...path.slice(0, -1), Buffer.from(`.holdfast-${unique}`)]);
  const known = named(createHash('sha256').update(formatPath(path)).digest('hex').slice(0, 24));
  try {
    await deleteIfThere(files, known);
    return known;
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    return named(randomBytes(12).toString('hex'));
  }
}

async function deleteIfThere(files: FilesConnection, path: string): Promise<void> {
  try {
    await files.call('files/delete', { path });
  } catch (error) {
    if (!(error instanceof HoldfastError && error.code === 'file_not_found')) throw error;
  }
}

async function create(files: FilesConnection, path: string, item: NonNullable<Item>): Promise<void> {
  switch (item.type) {
    case 'file':
      await write(files, path, item, { create: true, mode: item.mode & MODE_BITS });
      break;
    case 'symlink':
      await files.call('files/symlink', { path, link: encodeLink(item.target) });
      break;
    case 'directory':
      await files.call('files/mkdir', { path });
  }
}

async function write(
  files: FilesConnection,
  path: string,
  { bytes }: { readonly bytes: Buffer },
  expectation: { readonly ifVersion: string } | { readonly create: true; readonly mode: number },
): Promise<void> {
  if (bytes.length <= FILE_CHUNK_BYTES) {
    await files.call('files/write', { path, ...expectation }, { bytes });
    return;
  }
  const { result } = await files.call('files/begin', { path, ...expectation });
  const { upload } = result;
  for (let offset = 0; offset < bytes.length; offset += FILE_CHUNK_BYTES) {
    const part = bytes.subarray(offset, offset + FILE_CHUNK_BYTES);
    await files.call('files/append', { upload, offset }, { bytes: part });
  }
  await files.call('files/commit', { upload, size: bytes.length });
}
