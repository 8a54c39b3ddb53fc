import { open, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { PACK_NAME } from './dropping.ts';
import { syncDirectory } from './sync-directory.ts';

const PackNamesSchema = z.array(z.string().regex(PACK_NAME));
const NAME = 'suspect-packs.json';
/** The name that earlier versions wrote. */
const OLD_NAME = 'doubted.json';

/**
 * The names of packs in which damage was found. A list that cannot be read counts as empty: the damage will be found
 * again.
 */
export async function readSuspectPacks(directory: string): Promise<Set<string>> {
  for (const name of [NAME, OLD_NAME]) {
    try {
      return new Set(PackNamesSchema.parse(JSON.parse(await readFile(join(directory, name), 'utf8'))));
    } catch {
      // Missing or unreadable.
    }
  }
  return new Set();
}

/** Stores the list for the next supervisor. Best effort: a disk that damages files may refuse this one too. */
export async function writeSuspectPacks(directory: string, packNames: ReadonlySet<string>): Promise<void> {
  const path = join(directory, NAME);
  const temporary = `${path}.part`;
  try {
    const file = await open(temporary, 'w', 0o600);
    try {
      await file.writeFile(JSON.stringify([...packNames]));
      await file.datasync();
    } finally {
      await file.close();
    }
    await rename(temporary, path);
    await syncDirectory(directory);
  } catch {
    await rm(temporary, { force: true }).catch(() => undefined);
  }
}
