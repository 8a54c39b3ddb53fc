import { opendirSync } from 'node:fs';
import type { FileEntry } from '../../protocol/files.ts';
import { decodeName, encodeName } from '../../protocol/paths.ts';
import { Directory } from './directory.ts';
import { OpenFile, openDirectory } from './open-file.ts';
import type { Native } from './native.ts';
import type { TemporaryEntries } from './temporary-entries.ts';
import type { Resolver } from './resolver.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { statEntry } from './stat.ts';

/** Limit of one page, which must fit into one message line of at most 1 MiB. */
const PAGE_CHARACTERS = 256 * 1024;
const READ_AHEAD = 1024;

export interface ListOptions {
  readonly cursor: string | undefined;
  readonly limit: number;
  readonly signal: AbortSignal;
}

/**
 * One page of a folder, in byte order of the names. Links are not followed. The cursor is the last name, so an entry
 * that exists throughout is listed exactly once, even if the folder changes between pages. Memory is bounded by the
 * page, not by the folder.
 */
export async function listPath(
  access: {
    readonly resolver: Resolver;
    readonly native: Native | null;
    readonly temporaryEntries: TemporaryEntries;
  },
  path: readonly Buffer[],
  { cursor, limit, signal }: ListOptions,
): Promise<{ entries: FileEntry[]; nextCursor: string | null }> {
  const slices = new TimeSlice(signal);
  using named = new OpenFile(access.resolver.open(path, true));
  using folder = openDirectory(named);
  const directory = Directory.fromFd(folder.fd);
  const after = cursor === undefined ? '' : decodeName(cursor).toString('latin1');
  const { names, more } = await namesAfter(directory, access.temporaryEntries, { after, limit }, slices);

  const entries: FileEntry[] = [];
  let characters = 0;
  for (const [index, latin] of names.entries()) {
    const name = Buffer.from(latin, 'latin1');
    const stat = statEntry(access, path, directory, name);
    const spelled = encodeName(name);
    if (stat !== null) {
      entries.push({ name: spelled, ...stat });
      // The largest possible size: an escaped byte takes three characters.
      characters += 100 + spelled.length + (stat.link?.length ?? 0);
    }
    const isLast = index === names.length - 1;
    if (isLast && !more) break;
    if (isLast || characters > PAGE_CHARACTERS) return { entries, nextCursor: spelled };
    if (slices.isUsedUp) await slices.yieldToEventLoop();
  }
  return { entries, nextCursor: null };
}

/** The first `limit` names after `after`, sorted, one character per byte. Holds at most a few pages of names. */
async function namesAfter(
  directory: Directory,
  temporaryEntries: TemporaryEntries,
  { after, limit }: { readonly after: string; readonly limit: number },
  slices: TimeSlice,
): Promise<{ names: string[]; more: boolean }> {
  let names: string[] = [];
  let more = false;
  /** The last name that can still be on the page. In a large folder, most names are beyond it. */
  const page: { last: string | null } = { last: null };
  const cut = (): void => {
    names.sort(byBytes);
    if (names.length > limit) {
      names.length = limit;
      more = true;
      page.last = names[limit - 1] ?? null;
    }
  };
  const entries = opendirSync(directory.selfPath, { encoding: 'latin1', bufferSize: READ_AHEAD });
  try {
    for (let entry = entries.readSync(); entry !== null; entry = entries.readSync()) {
      const { name } = entry;
      const isWanted = name > after && (page.last === null || name < page.last);
      if (isWanted && !temporaryEntries.isTemporary(directory.fd, name)) names.push(name);
      if (names.length >= limit * 4 + READ_AHEAD) {
        cut();
        names = [...names];
      }
      if (slices.isUsedUp) await slices.yieldToEventLoop();
    }
  } finally {
    entries.closeSync();
  }
  cut();
  return { names, more };
}

function byBytes(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}
