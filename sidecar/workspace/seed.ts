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
 * Creates entries in the workspace whose names are free, and leaves existing entries alone. A file appears complete or
 * not at all, so an interrupted call can be repeated. `content` holds the bytes of all files, one after the other.
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
      throw new HoldfastError('invalid_params', 'The entries need more bytes than were sent');
    }
    const bytes = content.subarray(offset, offset + size);
    offset += size;
    try {
      await withFileErrors(entry.path, async () => {
        switch (entry.kind) {
          case 'folder': {
            using place = namedPlace(resolver, names, entry.path);
            mkdirSync(place.directory.pathOf(place.name), FOLDER_MODE);
            // The sidecar's umask denies access to others. The folder is new and empty; a process that replaces it only
            // gets this mode on its own folder.
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
            const target = { displayPath: entry.path, locate: () => resolver.parent(names, false) };
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

/** The name, or a part of the path, is taken by the agent and stays. */
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
