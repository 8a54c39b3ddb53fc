import { lstat, open, readdir, readlink, realpath } from 'node:fs/promises';
import { posix, sep } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath } from '../../protocol/paths.ts';
import { IgnoreRules } from '../../project/ignore-rules.ts';
import { PROFILE_FILE } from '../../project/profile-file.ts';

/** Bytes of a path, one character each, so that names that are not UTF-8 survive. */
type RawPath = string;
const onDisk = (path: RawPath): Buffer => Buffer.from(path, 'latin1');
const readable = (path: RawPath): string => onDisk(path).toString('utf8');

export type SeedItem =
  | { readonly kind: 'folder'; readonly path: string }
  | { readonly kind: 'link'; readonly path: string; readonly target: string }
  | {
      readonly kind: 'file';
      readonly path: string;
      readonly mode: number;
      readonly size: number;
      readonly source: Buffer;
    };

export interface SeedSource {
  /** The directory of a version of a profile's code. It never changes. */
  readonly code: string;
  /** The git history of that version; null: workspaces begin without one. */
  readonly history: string | null;
  /** Folder inside it, relative. */
  readonly folder: string;
  readonly ignore: readonly string[];
}

/** What a workspace begins with, each folder before its entries. Errors: `not_found` when the project has no such folder. */
export async function* seedItems({ code, history, folder, ignore }: SeedSource): AsyncGenerator<SeedItem> {
  const top = Buffer.from(posix.join(code, folder), 'utf8').toString('latin1');
  const there = await lstat(onDisk(top)).catch((cause: unknown) => {
    throw noFolder(folder, cause);
  });
  if (!there.isDirectory()) throw noFolder(folder);
  // A component of the path may be a link that the project brought along.
  const [root, real] = await Promise.all([realpath(code), realpath(onDisk(top), { encoding: 'buffer' })]);
  const realText = real.toString('latin1');
  const rootText = Buffer.from(root, 'utf8').toString('latin1');
  if (realText !== rootText && !realText.startsWith(rootText + sep)) throw noFolder(folder);
  // The profile file is not part of the work; a rule of the profile can include it (`!/holdfast.yaml`).
  const own = posix.join(folder, '/') === './' ? [`/${PROFILE_FILE}`] : [];
  const ignores = IgnoreRules.none().within('', [[...own, ...ignore].join('\n')]);

  yield* itemsBelow(top, '', (path, isFolder) => ignores.ignores(path, isFolder));
  if (history !== null) yield* historyItems(history);
}

/**
 * Objects come before refs: when another version is deployed during the copy, and its history is copied on top, the refs of the
 * workspace still have their objects.
 */
async function* historyItems(history: string): AsyncGenerator<SeedItem> {
  const top = Buffer.from(history, 'utf8').toString('latin1');
  yield { kind: 'folder', path: formatPath([onDisk(GIT_FOLDER)]) };
  yield { kind: 'folder', path: formatPath([GIT_FOLDER, 'objects'].map(onDisk)) };
  yield* itemsBelow(join(top, 'objects'), `${GIT_FOLDER}/objects`, () => false);
  yield* itemsBelow(top, GIT_FOLDER, (path) => path === 'objects');
}
const GIT_FOLDER = '.git';

/** `isLeftOut` is asked with paths relative to `top`; the items' paths begin with `prefix`. */
async function* itemsBelow(
  top: RawPath,
  prefix: RawPath,
  isLeftOut: (path: string, isFolder: boolean) => boolean,
): AsyncGenerator<SeedItem> {
  async function* inside(relative: RawPath): AsyncGenerator<SeedItem> {
    const entries = await readdir(onDisk(join(top, relative)), { encoding: 'buffer' });
    const names = entries.map((name) => name.toString('latin1')).sort();
    for (const name of names) {
      const below = join(relative, name);
      const source = onDisk(join(top, below));
      const status = await lstat(source);
      if (isLeftOut(readable(below), status.isDirectory())) continue;
      const path = formatPath(join(prefix, below).split('/').map(onDisk));
      if (status.isDirectory()) {
        yield { kind: 'folder', path };
        yield* inside(below);
      } else if (status.isSymbolicLink()) {
        const target = await readlink(source, { encoding: 'buffer' });
        yield { kind: 'link', path, target: target.toString('base64') };
      } else if (status.isFile()) {
        yield { kind: 'file', path, mode: status.mode & 0o777, size: status.size, source };
      }
    }
  }
  yield* inside('');
}

/** Up to `length` bytes of a file from `offset` on. */
export async function readRange(source: Buffer, offset: number, length: number): Promise<Buffer> {
  const file = await open(source);
  try {
    const buffer = Buffer.alloc(length);
    let filled = 0;
    while (filled < length) {
      const { bytesRead } = await file.read(buffer, filled, length - filled, offset + filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    return buffer.subarray(0, filled);
  } finally {
    await file.close();
  }
}

function join(above: RawPath, name: RawPath): RawPath {
  if (name === '') return above;
  return above === '' ? name : `${above}/${name}`;
}

function noFolder(folder: string, cause?: unknown): HoldfastError {
  return new HoldfastError('not_found', 'The workspace cannot be filled', {
    why: `the project has no folder ${folder}, which \`workspace.seed\` names`,
    next: 'correct `workspace.seed` in holdfast.yaml, or set it to false, and deploy again',
    cause,
  });
}
