import { constants, fstatSync, linkSync, openSync, renameSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import type { WriteResult } from '../../protocol/files.ts';
import { errnoOf } from './directory.ts';
import { DirectorySyncs } from './directory-syncs.ts';
import type { Native } from './native.ts';
import { identityOf, OpenFile, openRegular } from './open-file.ts';
import { versionConflict } from './read.ts';
import { openName, O_PATH, type Place } from './resolver.ts';
import {
  syncFile,
  unlinkTemporaryName,
  StagedFile,
  type TemporaryName,
  type TemporaryNames,
} from './staged-file.ts';
import { systemError } from './file-errors.ts';
import { toFileStat } from './stat.ts';
import { MAX_HASHED_BYTES, contentVersion, versionOf } from './version.ts';
import {
  type ExpectedFile,
  statSignatureOf,
  isExpected,
  NOT_CREATED,
  type WriteIntents,
} from './write-intents.ts';

/** How often a write is retried when the target changes meanwhile. */
const TRIES = 8;
const MAX_SWAPS = 16;
const NEW_FILE = 0o644;
const OWNER_WRITE = 0o200n;
const PERMISSIONS = 0o777n;

export interface WritePrecondition {
  readonly ifVersion?: string | undefined;
  readonly overwrite?: boolean | undefined;
  readonly create?: boolean | undefined;
  readonly mode?: number | undefined;
}

export interface WriteTarget {
  /** The path as the caller wrote it, for errors. */
  readonly displayPath: string;
  /** Resolves the current folder and name of the path. */
  readonly locate: () => Place;
}

export interface WriterOptions {
  readonly native: Native | null;
  readonly intents: WriteIntents;
  /** For tests: puts what a descriptor names on the disk. */
  readonly sync?: (fd: number) => Promise<void>;
}

/**
 * Replaces a file's content atomically, and only if the old content is what the caller expects. The staged file and the
 * target swap names (RENAME_EXCHANGE), and what came out is checked. If it is not the expected file, they swap back.
 */
export class FileWriter {
  readonly #native: Native | null;
  readonly #intents: WriteIntents;
  readonly #sync: (fd: number) => Promise<void>;
  readonly #directories: DirectorySyncs;
  /** False once the file system has refused to swap names. */
  #canExchange: boolean;

  constructor({ native, intents, sync = syncFile }: WriterOptions) {
    this.#native = native;
    this.#intents = intents;
    this.#sync = sync;
    this.#directories = new DirectorySyncs(sync);
    this.#canExchange = native !== null;
  }

  write(target: WriteTarget, precondition: WritePrecondition, content: Uint8Array): Promise<WriteResult> {
    const fill = (staged: StagedFile): Promise<void> => staged.append(content);
    return this.writeWith(target, precondition, fill, contentVersion(content));
  }

  /** Writes content that `fill` puts into the staged file. `version`: that of the content, if it is known. */
  async writeWith(
    target: WriteTarget,
    precondition: WritePrecondition,
    fill: (staged: StagedFile) => Promise<void>,
    version?: string,
  ): Promise<WriteResult> {
    const staged = this.stage(target, precondition);
    try {
      await fill(staged);
      return await this.commit(target, precondition, staged, version);
    } finally {
      this.discard(staged);
    }
  }

  /** Creates a staged file. Fails at once if the write cannot succeed. The caller ends it with `discard`. */
  stage({ displayPath: text, locate }: WriteTarget, precondition: WritePrecondition): StagedFile {
    checkPrecondition(precondition);
    using place = locate();
    if (place.name === null) throw new HoldfastError('file_is_a_directory', `${text} is a folder`);
    using current = this.#open(place);
    checkPlace(current, text, precondition);
    const { name } = place;
    return StagedFile.create(place.directory, this.#native, this.#namesFor(name, { kind: 'anything' }));
  }

  /** Temporary names for the file that replaces `target`. */
  #namesFor(target: Buffer, expected: ExpectedFile): TemporaryNames {
    return {
      newName: () => this.#intents.newName(),
      register: (temporary, identity) =>
        this.#intents.register(temporary, target, identity ?? NOT_CREATED, expected),
      unregister: (temporary) => this.#intents.unregister(temporary),
    };
  }

  discard(staged: StagedFile): void {
    const { temporary } = staged;
    staged.close();
    if (temporary !== null) this.#intents.unregister(temporary);
  }

  /** `version`: that of the content, if it is known. The caller still discards the staged file. */
  async commit(
    target: WriteTarget,
    precondition: WritePrecondition,
    staged: StagedFile,
    version?: string,
  ): Promise<WriteResult> {
    const { displayPath: text } = target;
    staged.setAttributes(precondition.mode ?? NEW_FILE, fstatSync(staged.fd).gid);
    await staged.sync();
    for (let tries = 0; tries < TRIES; tries += 1) {
      using place = target.locate();
      if (place.name === null) throw new HoldfastError('file_is_a_directory', `${text} is a folder`);
      using current = this.#open(place);
      if (current?.stat().isSymbolicLink() === true) continue;
      checkPlace(current, text, precondition);
      if (current === null) {
        if (staged.isLost) break;
        if (!this.#place(staged, place.directory, place.name)) continue;
        await this.#directories.sync(place.directory);
        return await written(staged, version, { created: true, hardlinked: false });
      }
      const expected = await this.#expectedOf(current, text, precondition, version);
      if (expected === 'there already') {
        using file = openRegular(current, text);
        // The write that put it there may not have got as far as the disk.
        await this.#sync(file.fd);
        await this.#directories.sync(place.directory);
        return await written(file, version, { created: false, hardlinked: false });
      }
      if (staged.isLost) break;
      const { mode, gid } = current.stat();
      staged.setAttributes(Number(mode & PERMISSIONS), Number(gid));
      const swapped = await this.#replace(staged, place, place.name, expected);
      if (swapped === null) continue;
      await this.#directories.sync(place.directory);
      return await written(staged, version, { created: false, hardlinked: swapped.hardlinked });
    }
    throw systemError('EAGAIN', 'rename');
  }

  #open(place: Place): OpenFile | null {
    try {
      return new OpenFile(openName(place));
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return null;
      throw error;
    }
  }

  async #expectedOf(
    current: OpenFile,
    text: string,
    { ifVersion }: WritePrecondition,
    newVersion: string | undefined,
  ): Promise<ExpectedFile | 'there already'> {
    if (ifVersion === undefined) return { kind: 'anything' };
    using file = openRegular(current, text);
    const { version } = await versionOf(file);
    if (version !== ifVersion) {
      // A repeated request whose first answer was lost: the wanted content is there.
      if (version === newVersion) return 'there already';
      throw versionConflict(text, version);
    }
    const isContent = file.stat().size <= BigInt(MAX_HASHED_BYTES);
    return isContent ? { kind: 'content', version } : { kind: 'facts', facts: statSignatureOf(file) };
  }

  /** Gives the staged file a name that is free. False if another process took the name. */
  #place(staged: StagedFile, directory: Place['directory'], name: Buffer): boolean {
    const { temporary } = staged;
    try {
      if (temporary === null) {
        if (this.#native === null) throw systemError('ENOSYS', 'linkat');
        this.#native.linkDescriptor(staged.fd, directory.fd, name);
      } else if (this.#native !== null) {
        this.#native.renameNoReplace(temporary.directory.fd, temporary.name, directory.fd, name);
        this.#nameGone(staged, temporary);
      } else {
        linkSync(temporary.directory.pathOf(temporary.name), directory.pathOf(name));
        unlinkTemporaryName(temporary);
        this.#nameGone(staged, temporary);
      }
      return true;
    } catch (error) {
      if (errnoOf(error) === 'EEXIST') return false;
      throw error;
    }
  }

  /** Null if the target changed, so that it must be checked again. */
  async #replace(
    staged: StagedFile,
    place: Place,
    name: Buffer,
    expected: ExpectedFile,
  ): Promise<{ hardlinked: boolean } | null> {
    const { identity } = staged;
    const names = this.#namesFor(name, expected);
    const native = this.#canExchange ? this.#native : null;
    if (native === null) return await this.#replaceUnswapped(staged, place, name, expected);
    const named = staged.temporary;
    // A retry may replace another file than the last try did.
    if (named !== null) names.register(named, identity);
    const temporary = named ?? staged.linkTemporaryName(place.directory, native, names);
    const swap = (): void =>
      native.exchange(temporary.directory.fd, temporary.name, place.directory.fd, name);
    try {
      swap();
    } catch (error) {
      switch (errnoOf(error)) {
        case 'ENOENT':
          return null;
        case 'EINVAL':
        case 'ENOSYS':
          this.#canExchange = false;
          return null;
        case undefined:
        default:
          throw error;
      }
    }
    {
      using out = this.#openTemporary(temporary);
      if (out !== null && (await isExpected(out, expected).catch(() => false))) {
        const hardlinked = out.stat().nlink > 1n;
        unlinkTemporaryName(temporary);
        this.#nameGone(staged, temporary);
        return { hardlinked };
      }
    }
    this.#swapBack(staged, temporary, swap);
    return null;
  }

  /**
   * The target was changed first, so the file that came out goes back in. Other processes may keep replacing the target
   * meanwhile, and the newest file must win. The loop ends when a swap brings out what the previous swap put in.
   */
  #swapBack(staged: StagedFile, temporary: TemporaryName, swap: () => void): void {
    const { identity } = staged;
    let placed = identity;
    let held = this.#identityAt(temporary);
    for (let swaps = 0; swaps < MAX_SWAPS; swaps += 1) {
      swap();
      const out = this.#identityAt(temporary);
      const isOver = out === placed;
      placed = held;
      held = out;
      if (isOver) break;
    }
    if (held === identity) return;
    // Our content was replaced while it was in place, and it is gone. The file left over is the one that the other
    // process meant to replace.
    unlinkTemporaryName(temporary);
    this.#nameGone(staged, temporary);
    staged.isLost = true;
  }

  #identityAt(temporary: TemporaryName): string {
    using there = this.#openTemporary(temporary);
    if (there === null) throw systemError('ESTALE', 'open');
    return identityOf(there);
  }

  /** For file systems that cannot swap names: checks, then renames. A change between the two is lost. */
  async #replaceUnswapped(
    staged: StagedFile,
    place: Place,
    name: Buffer,
    expected: ExpectedFile,
  ): Promise<{ hardlinked: boolean } | null> {
    let { temporary } = staged;
    if (temporary === null) {
      if (this.#native === null) throw systemError('ENOSYS', 'linkat');
      const names = this.#namesFor(name, { kind: 'anything' });
      temporary = staged.linkTemporaryName(place.directory, this.#native, names);
    }
    using current = this.#open(place);
    if (current === null || !(await isExpected(current, expected))) return null;
    const hardlinked = current.stat().nlink > 1n;
    renameSync(temporary.directory.pathOf(temporary.name), place.directory.pathOf(name));
    this.#nameGone(staged, temporary);
    return { hardlinked };
  }

  #nameGone(staged: StagedFile, temporary: TemporaryName): void {
    staged.releaseName();
    this.#intents.unregister(temporary);
  }

  #openTemporary({ directory, name }: TemporaryName): OpenFile | null {
    try {
      return new OpenFile(openSync(directory.pathOf(name), O_PATH | constants.O_NOFOLLOW));
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return null;
      throw error;
    }
  }
}

function checkPrecondition({ ifVersion, overwrite, create }: WritePrecondition): void {
  if (ifVersion !== undefined || overwrite === true || create === true) return;
  throw new HoldfastError('invalid_params', 'The file was not written', {
    why: 'the request does not say what it expects to find',
    next: 'give ifVersion, overwrite: true or create: true',
  });
}

/** Throws if the write can never succeed. A link is a race, and the caller tries again. */
function checkPlace(current: OpenFile | null, text: string, precondition: WritePrecondition): void {
  const { ifVersion, overwrite, create } = precondition;
  if (current === null) {
    if (ifVersion !== undefined) throw versionConflict(text, null);
    if (create !== true) throw new HoldfastError('file_not_found', `There is no ${text}`);
    return;
  }
  const stat = current.stat();
  if (stat.isSymbolicLink()) return;
  if (stat.isDirectory()) throw new HoldfastError('file_is_a_directory', `${text} is a folder`);
  if (!stat.isFile()) throw new HoldfastError('file_not_regular', `${text} is not a regular file`);
  if (ifVersion === undefined && overwrite !== true) {
    throw new HoldfastError('file_exists', `There is a ${text} already`, {
      next: 'give overwrite: true or ifVersion to replace it',
    });
  }
  if (Number(stat.uid) !== process.getuid?.() || (stat.mode & OWNER_WRITE) === 0n) {
    throw new HoldfastError('permission_denied', `${text} was not written`, {
      why: 'its mode or owner does not allow it',
      next: 'change its mode in the sandbox',
    });
  }
}

async function written(
  file: { readonly fd: number },
  version: string | undefined,
  facts: Pick<WriteResult, 'created' | 'hardlinked'>,
): Promise<WriteResult> {
  const looked =
    version === undefined ? await versionOf(file) : { version, stat: fstatSync(file.fd, { bigint: true }) };
  const { size, mtimeMs, mtimeNs } = toFileStat(looked.stat);
  return { version: looked.version, size, mtimeMs, mtimeNs, ...facts };
}
