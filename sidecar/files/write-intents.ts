import { constants, lstatSync, openSync, readlinkSync } from 'node:fs';
import { z } from 'zod';
import { WORKSPACE } from '../../protocol/paths.ts';
import { Directory, errnoOf, isPathError } from './directory.ts';
import type { Native } from './native.ts';
import { OpenFile, openRegular } from './open-file.ts';
import type { TemporaryEntries } from './temporary-entries.ts';
import { O_PATH, type Resolver } from './resolver.ts';
import { unlinkTemporaryName, type TemporaryName } from './staged-file.ts';
import { versionOf } from './version.ts';

const SLASH = '/'.charCodeAt(0);
/** In a record whose file has not been created yet. The value is stored. */
export const NOT_CREATED = 'not made yet';

/** What the replaced file must be: exactly this content, exactly this unchanged file, or anything. */
export const ExpectedFileSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('content'), version: z.string() }),
  z.object({ kind: z.literal('facts'), facts: z.string() }),
  z.object({ kind: z.literal('anything') }),
]);
export type ExpectedFile = z.infer<typeof ExpectedFileSchema>;

/** Names are bytes, stored in hexadecimal. */
const IntentSchema = z.object({
  /** Path of the folder. */
  folder: z.string(),
  target: z.string(),
  /** Device and inode of the new content, or NOT_CREATED. */
  staged: z.string(),
  expected: ExpectedFileSchema,
});

/**
 * Records of writes while they have a temporary name. After a crash the next sidecar finishes or undoes those writes,
 * so the workspace has the old or the new content, and no temporary file.
 */
export class WriteIntents {
  readonly #temporaryEntries: TemporaryEntries;

  constructor(temporaryEntries: TemporaryEntries) {
    this.#temporaryEntries = temporaryEntries;
  }

  newName(): Buffer {
    return this.#temporaryEntries.newName('write');
  }

  /** Before a file of the temporary name exists. */
  register({ directory, name }: TemporaryName, target: Buffer, staged: string, expected: ExpectedFile): void {
    const folder = readlinkSync(`/proc/self/fd/${directory.fd}`, { encoding: 'buffer' });
    const intent: z.input<typeof IntentSchema> = {
      folder: folder.toString('hex'),
      target: target.toString('hex'),
      staged,
      expected,
    };
    this.#temporaryEntries.register(name, directory, intent);
  }

  /** The temporary name is gone. */
  unregister({ name }: TemporaryName): void {
    this.#temporaryEntries.unregister(name);
  }

  /** Recovers the writes that an earlier sidecar left. `root` is the workspace's path in this process. */
  async recover(resolver: Resolver, native: Native | null, root: string): Promise<number> {
    let recovered = 0;
    for (const { name, note } of this.#temporaryEntries.leftovers('write')) {
      const parsed = IntentSchema.safeParse(note);
      if (parsed.success) {
        try {
          await recoverWrite(name, parsed.data, resolver, native, root);
        } catch (error) {
          if (errnoOf(error) === undefined) throw error;
          console.error('files: an interrupted write could not be recovered:', error);
        }
      }
      this.#temporaryEntries.unregister(name);
      recovered += 1;
    }
    return recovered;
  }
}

async function recoverWrite(
  temporary: Buffer,
  { folder, target, staged, expected }: z.output<typeof IntentSchema>,
  resolver: Resolver,
  native: Native | null,
  root: string,
): Promise<void> {
  const path = Buffer.from(folder, 'hex');
  const top = Buffer.from(root);
  if (!path.subarray(0, top.length).equals(top)) return;
  const names = splitPath(path.subarray(top.length));
  let fd: number;
  try {
    fd = resolver.open(names, false);
  } catch (error) {
    // Its folder was removed, and the file with it.
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') return;
    throw error;
  }
  using directory = Directory.fromFd(fd);
  const left = { directory, name: temporary };
  let out: OpenFile;
  try {
    out = new OpenFile(openSync(directory.pathOf(left.name), O_PATH | constants.O_NOFOLLOW));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return;
    throw error;
  }
  using file = out;
  const { dev, ino, size } = file.stat();
  if (staged === NOT_CREATED) {
    // Ours is still empty, so a file with content is somebody else's.
    if (file.stat().isFile() && size === 0n) unlinkTemporaryName(left);
    return;
  }
  // Ours, before the swap.
  if (`${dev}:${ino}` === staged) {
    unlinkTemporaryName(left);
    return;
  }
  // The file that the write was to replace.
  if (expected.kind !== 'anything' && (await isExpected(file, expected))) {
    unlinkTemporaryName(left);
    return;
  }
  const name = Buffer.from(target, 'hex');
  // Nothing was swapped, so this file is somebody else's and stays.
  if (identityAt(directory, name) !== staged) return;
  // Another process's change came out of the swap and goes back.
  if (expected.kind !== 'anything' && native !== null) {
    native.exchange(directory.fd, left.name, directory.fd, name);
    if (identityAt(directory, left.name) !== staged) return;
  }
  if (expected.kind === 'anything' || native !== null) unlinkTemporaryName(left);
}

function identityAt(directory: Directory, name: Buffer): string | null {
  try {
    const { dev, ino } = lstatSync(directory.pathOf(name), { bigint: true });
    return `${dev}:${ino}`;
  } catch (error) {
    if (isPathError(error)) return null;
    throw error;
  }
}

/** Whether the file of an O_PATH descriptor is the one that a write was to replace. */
export async function isExpected(named: OpenFile, expected: ExpectedFile): Promise<boolean> {
  const stat = named.stat();
  if (!stat.isFile()) return false;
  switch (expected.kind) {
    case 'anything':
      return true;
    case 'facts':
      return statSignatureOf(named) === expected.facts;
    case 'content': {
      using file = openRegular(named, WORKSPACE);
      for (;;) {
        const before = file.stat();
        const { version } = await versionOf(file);
        if (version !== expected.version) return false;
        if (file.stat().ctimeNs === before.ctimeNs) return true;
      }
    }
  }
}

/** Changes with the file's content, but not with a rename. */
export function statSignatureOf(file: OpenFile): string {
  const { dev, ino, size, mtimeNs } = file.stat();
  return [dev, ino, size, mtimeNs].join(' ');
}

function splitPath(path: Buffer): Buffer[] {
  const names: Buffer[] = [];
  for (let from = 0; from < path.length;) {
    const slash = path.indexOf(SLASH, from);
    const end = slash === -1 ? path.length : slash;
    if (end > from) names.push(path.subarray(from, end));
    from = end + 1;
  }
  return names;
}
