import type { Stats } from 'node:fs';
import { HoldfastError } from '../protocol/errors.ts';
import { readable, type RawPath } from './raw-path.ts';

/** An entry of the project cannot be deployed. */
export function entryError(path: RawPath, why: string, next: string): HoldfastError {
  return new HoldfastError('profile_invalid', `${readable(path)} cannot be deployed`, {
    why,
    next,
    details: { path: readable(path) },
  });
}

/** `name`: what there is too much of, in the plural. */
export function limitError(path: RawPath, limit: number, name: string): HoldfastError {
  return entryError(
    path,
    `the project has more than ${limit} ${name}`,
    'list what is not code in .holdfastignore',
  );
}

export function describeKind(status: Stats): string {
  if (status.isFIFO()) return 'a named pipe';
  if (status.isSocket()) return 'a socket';
  if (status.isCharacterDevice() || status.isBlockDevice()) return 'a device';
  if (status.isSymbolicLink()) return 'a link';
  return 'not a regular file';
}
