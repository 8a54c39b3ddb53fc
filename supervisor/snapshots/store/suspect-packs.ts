import { open, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { PACK_NAME } from './dropping.ts';
import { syncDirectory } from './sync-directory.ts';

const DoubtedSchema = z.array(z.string().regex(PACK_NAME));
const fileOf = (directory: string): string => join(directory, 'doubted.json');

/** Names of packs in which something was found damaged. A list that cannot be read is none: what is damaged is found again. */
export async function readSuspectPacks(directory: string): Promise<Set<string>> {
  try {
    return new Set(DoubtedSchema.parse(JSON.parse(await readFile(fileOf(directory), 'utf8'))));
  } catch {
    return new Set();
  }
}

/** For the next supervisor. Best effort: a disk that damages files may not take this one either. */
export async function writeSuspectPacks(directory: string, packNames: ReadonlySet<string>): Promise<void> {
  const path = fileOf(directory);
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
