import { mkdirSync, chmodSync, symlinkSync } from 'node:fs';
import type { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { parsePath } from '../../protocol/paths.ts';
import { errnoOf } from '../files/directory.ts';
import { withFileErrors } from '../files/file-errors.ts';
import { namedPlace } from '../files/folders.ts';
import type { WorkspaceFiles } from '../files/workspace-files.ts';
import type { SeedEntrySchema } from '../wire.ts';

type SeedEntry = z.output<typeof SeedEntrySchema>;
const FOLDER_MODE = 0o755;

/**
 * Puts entries into the workspace where nothing of that name is; what is there stays as it is. Files appear whole or not at all, so an
 * interrupted call can be repeated. `content` holds the files' bytes one after the other.
 */
export async function seedWorkspace(
  files: Pick<WorkspaceFiles, 'ready'>,
  entries: readonly SeedEntry[],
  content: Buffer,
  signal: AbortSignal,
): Promise<{ made: number; kept: number }> {
  const { resolver, writer } = await files.ready();
  let offset = 0;
  let made = 0;
  for (const entry of entries) {
    signal.throwIfAborted();
    const names = parsePath(entry.path);
    const size = entry.kind === 'file' ? entry.size : 0;
    if (offset + size > content.length) {
      throw new HoldfastError('invalid_params', 'The files are longer than what came with them');
    }
    const bytes = content.subarray(offset, offset + size);
    offset += size;
    try {
      await withFileErrors(entry.path, async () => {
        switch (entry.kind) {
          case 'folder': {
            using place = namedPlace(resolver, names, entry.path);
            mkdirSync(place.directory.pathOf(place.name), FOLDER_MODE);
            // Our own umask lets nobody in. Just made and empty: whoever swaps it gets this mode on a folder of his own.
            using folder = place.directory.openDirectory(place.name);
            chmodSync(folder.selfPath, FOLDER_MODE);
            return;
          }
          case 'link': {
            using place = namedPlace(resolver, names, entry.path);
            symlinkSync(Buffer.from(entry.target, 'base64'), place.directory.pathOf(place.name));
            return;
          }
          case 'file': {
            const target = { text: entry.path, locate: () => resolver.parent(names, false) };
            await writer.write(target, { create: true, mode: entry.mode }, bytes);
          }
        }
      });
      made += 1;
    } catch (error) {
      if (!isTaken(error)) throw error;
    }
  }
  return { made, kept: entries.length - made };
}

/** Something is there, or on the way there: it is the agent's, and stays. */
function isTaken(error: unknown): boolean {
  if (errnoOf(error) === 'EEXIST') return true;
  if (!(error instanceof HoldfastError)) return false;
  switch (error.code) {
    case 'file_exists':
    case 'file_not_a_directory':
    case 'file_is_a_directory':
    case 'file_not_regular':
      return true;
    default:
      return false;
  }
}
