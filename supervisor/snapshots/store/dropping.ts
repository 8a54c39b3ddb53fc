import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { failpoint } from '../../base/failpoints.ts';
import { hasErrorCode, storageError } from '../../store/storage-error.ts';
import { syncDirectory } from './sync-directory.ts';

/** The file name of a published pack. */
export const PACK_NAME = /^[0-9a-f]{32}\.pack$/;
const DroppingSchema = z.array(z.string().regex(PACK_NAME));
const fileOf = (directory: string): string => join(directory, 'dropping.json');

/**
 * Packs are removed together or not at all, because one that stays could reference objects of one that is gone. So the
 * list of packs is made durable first; from then on, whoever opens the store removes them.
 */
export function beginDropping(directory: string, packNames: ReadonlySet<string>): void {
  const path = fileOf(directory);
  const temporary = `${path}.part`;
  try {
    const descriptor = openSync(temporary, 'w', 0o600);
    try {
      writeSync(descriptor, JSON.stringify([...packNames]));
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
    renameSync(temporary, path);
    const folder = openSync(directory, 'r');
    try {
      fsyncSync(folder);
    } finally {
      closeSync(folder);
    }
  } catch (error) {
    rmSync(temporary, { force: true });
    throw storageError(error, 'Unused packs of snapshots could not be removed');
  }
}

/** Removes the packs of an unfinished removal, if there is one. */
export async function finishDropping(directory: string): Promise<void> {
  const path = fileOf(directory);
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (hasErrorCode(error, 'ENOENT')) return;
    throw error;
  }
  for (const name of DroppingSchema.parse(JSON.parse(text))) {
    await rm(join(directory, 'packs', name), { force: true });
    await failpoint('gc.after-pack');
  }
  await syncDirectory(join(directory, 'packs'));
  await rm(path);
  await syncDirectory(directory);
}
