import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { Directory, errnoOf } from '../files/directory.ts';
import { IN_SANDBOX } from '../wire.ts';

const MAX_BYTES = 2 ** 20;
const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/**
 * Reads a small regular file of the workspace. `path` is relative to it or starts with /workspace/. Links are refused,
 * on the way and at the end. Errors: the `file_*` codes.
 */
export function readWorkspaceFile(workspace: string, path: string): Buffer {
  const parts = namesOf(path);
  const last = parts.pop();
  if (last === undefined) throw new HoldfastError('file_is_a_directory', `${path} is not a file`);
  let directory = Directory.open(workspace);
  try {
    for (const name of parts) {
      const next = opened(path, () => directory.openDirectory(name));
      directory.close();
      directory = next;
    }
    const fd = opened(path, () => openSync(directory.path(last), O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
    try {
      return contentOf(fd, path);
    } finally {
      closeSync(fd);
    }
  } finally {
    directory.close();
  }
}

function namesOf(path: string): string[] {
  const prefix = `${IN_SANDBOX.workspace}/`;
  const below = path.startsWith(prefix) ? path.slice(prefix.length) : path;
  if (below.startsWith('/') || below.includes('\0')) {
    throw new HoldfastError('permission_denied', `${path} is not in ${IN_SANDBOX.workspace}`);
  }
  const parts = below.split('/').filter((part) => part !== '' && part !== '.');
  if (parts.includes('..')) throw new HoldfastError('permission_denied', `${path} may not contain ..`);
  return parts;
}

function contentOf(fd: number, path: string): Buffer {
  const stat = fstatSync(fd);
  if (stat.isDirectory()) throw new HoldfastError('file_is_a_directory', `${path} is a folder`);
  if (!stat.isFile()) throw new HoldfastError('file_not_regular', `${path} is not a regular file`);
  if (stat.size > MAX_BYTES) {
    throw new HoldfastError('file_too_large', `${path} is larger than ${MAX_BYTES} bytes`);
  }
  const buffer = Buffer.alloc(MAX_BYTES);
  return buffer.subarray(0, readSync(fd, buffer, 0, MAX_BYTES, 0));
}

function opened<T>(path: string, open: () => T): T {
  try {
    return open();
  } catch (cause) {
    switch (errnoOf(cause)) {
      case 'ENOENT':
        throw new HoldfastError('file_not_found', `There is no ${path}`, { cause });
      case 'ENOTDIR':
        throw new HoldfastError(
          'file_not_a_directory',
          `${path} leads through something that is not a folder`,
          { cause },
        );
      case 'ELOOP':
        throw new HoldfastError('file_not_regular', `${path} is or leads through a link`, { cause });
      case 'EACCES':
      case 'EPERM':
        throw new HoldfastError('permission_denied', `${path} may not be read`, { cause });
      case 'ENXIO':
        throw new HoldfastError('file_not_regular', `${path} is not a regular file`, { cause });
      case undefined:
      default:
        throw cause;
    }
  }
}
