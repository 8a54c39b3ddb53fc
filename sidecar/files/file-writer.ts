import { closeSync, constants, fstatSync, linkSync, openSync, renameSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import type { WriteResult } from '../../protocol/files.ts';
import { errnoOf } from './directory.ts';
import type { Native } from './native.ts';
import { identityOf, OpenFile, openRegular } from './open-file.ts';
import { versionConflict } from './read.ts';
import { openName, O_PATH, type Place } from './resolver.ts';
import {
  unlinkTemporaryName,
  StagedFile,
  syncFile,
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

/** How often a place that changes under our hands is looked at again. */
const TRIES = 8;
const MOST_EXCHANGES = 16;
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
  /** As the caller wrote it, for errors. */
  readonly text: string;
  /** The folder and name that it means now. */
  readonly locate: () => Place;
}

export interface WriterOptions {
  readonly native: Native | null;
  readonly intents: WriteIntents;
}

/**
 * Puts new content in the place of old in one step, and only if the old is what the caller believes: the staged file and the
 * one that is there swap names, and what came out is looked at; if it is something else, they swap back.
 */
export class FileWriter {
  readonly #native: Native | null;
  readonly #intents: WriteIntents;
  /** False once the file system has said that it cannot swap names. */
  #canExchange: boolean;

  constructor({ native, intents }: WriterOptions) {
    this.#native = native;
    this.#intents = intents;
    this.#canExchange = native !== null;
  }

  write(target: WriteTarget, expectation: WritePrecondition, content: Uint8Array): Promise<WriteResult> {
    const fill = (staged: StagedFile): Promise<void> => staged.append(content);
    return this.writeWith(target, expectation, fill, contentVersion(content));
  }

  /** A write whose content somebody else puts into the staged file. `version` of it, where it is known. */
  async writeWith(
    target: WriteTarget,
    expectation: WritePrecondition,
    fill: (staged: StagedFile) => Promise<void>,
    version?: string,
  ): Promise<WriteResult> {
    const staged = this.stage(target, expectation);
    try {
      await fill(staged);
      return await this.commit(target, expectation, staged, version);
    } finally {
      this.discard(staged);
    }
  }

  /** Room for new content; fails at once where the write could not succeed. End it with `discard`. */
  stage({ text, locate }: WriteTarget, expectation: WritePrecondition): StagedFile {
    demandExpectation(expectation);
    using place = locate();
    if (place.name === null) throw new HoldfastError('file_is_a_directory', `${text} is a folder`);
    using current = this.#lookAt(place);
    checkPlace(current, text, expectation);
    const { name } = place;
    return StagedFile.create(place.directory, this.#native, this.#namesFor(name, { kind: 'anything' }));
  }

  /** Temporary names for what is to replace `target`. */
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

  /** `version` of the content, where it is known. The staged file stays the caller's to discard. */
  async commit(
    target: WriteTarget,
    expectation: WritePrecondition,
    staged: StagedFile,
    version?: string,
  ): Promise<WriteResult> {
    const { text } = target;
    staged.setAttributes(expectation.mode ?? NEW_FILE, fstatSync(staged.fd).gid);
    await staged.sync();
    for (let tries = 0; tries < TRIES; tries += 1) {
      using place = target.locate();
      if (place.name === null) throw new HoldfastError('file_is_a_directory', `${text} is a folder`);
      using current = this.#lookAt(place);
      if (current?.stat().isSymbolicLink() === true) continue;
      checkPlace(current, text, expectation);
      if (current === null) {
        if (staged.isLost) break;
        if (!this.#place(staged, place.directory, place.name)) continue;
        await syncDirectory(place);
        return await written(staged, version, { created: true, hardlinked: false });
      }
      const expected = await this.#expectedOf(current, text, expectation, version);
      if (expected === 'there already') {
        using file = openRegular(current, text);
        return await written(file, version, { created: false, hardlinked: false });
      }
      if (staged.isLost) break;
      const { mode, gid } = current.stat();
      staged.setAttributes(Number(mode & PERMISSIONS), Number(gid));
      const swapped = await this.#replace(staged, place, place.name, expected);
      if (swapped === null) continue;
      await syncDirectory(place);
      return await written(staged, version, { created: false, hardlinked: swapped.hardlinked });
    }
    throw systemError('EAGAIN', 'rename');
  }

  #lookAt(place: Place): OpenFile | null {
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
    own: string | undefined,
  ): Promise<ExpectedFile | 'there already'> {
    if (ifVersion === undefined) return { kind: 'anything' };
    using file = openRegular(current, text);
    const { version } = await versionOf(file);
    if (version !== ifVersion) {
      // Asked for again after an answer that was lost: what is wanted is there.
      if (version === own) return 'there already';
      throw versionConflict(text, version);
    }
    const isContent = file.stat().size <= BigInt(MAX_HASHED_BYTES);
    return isContent ? { kind: 'content', version } : { kind: 'facts', facts: statSignatureOf(file) };
  }

  /** A name for a file where there is none. False when somebody was faster. */
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

  /** Null when the place has changed and has to be looked at again. */
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
    // What it is to replace may be something else than at the try before.
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
      using out = this.#lookAtName(temporary);
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
   * Somebody was faster: what came out goes back in, and so does whatever they put there meanwhile, the newest last. It is
   * over when the swap brings out what the swap before had put in: then nobody was in between.
   */
  #swapBack(staged: StagedFile, temporary: TemporaryName, swap: () => void): void {
    const { identity } = staged;
    let placed = identity;
    let held = this.#identityAt(temporary);
    for (let swaps = 0; swaps < MOST_EXCHANGES; swaps += 1) {
      swap();
      const out = this.#identityAt(temporary);
      const isOver = out === placed;
      placed = held;
      held = out;
      if (isOver) break;
    }
    if (held === identity) return;
    // They replaced our content while it was there: it is gone, and what is left over is what they would have replaced.
    unlinkTemporaryName(temporary);
    this.#nameGone(staged, temporary);
    staged.isLost = true;
  }

  #identityAt(temporary: TemporaryName): string {
    using there = this.#lookAtName(temporary);
    if (there === null) throw systemError('ESTALE', 'open');
    return identityOf(there);
  }

  /** Where names cannot be swapped: looked at, then replaced; a change in the moment between is lost. */
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
    using current = this.#lookAt(place);
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

  #lookAtName({ directory, name }: TemporaryName): OpenFile | null {
    try {
      return new OpenFile(openSync(directory.pathOf(name), O_PATH | constants.O_NOFOLLOW));
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return null;
      throw error;
    }
  }
}

function demandExpectation({ ifVersion, overwrite, create }: WritePrecondition): void {
  if (ifVersion !== undefined || overwrite === true || create === true) return;
  throw new HoldfastError('invalid_params', 'The file was not written', {
    why: 'the request does not say what it expects to find',
    next: 'give ifVersion, overwrite: true or create: true',
  });
}

/** Throws where this write can never be. A link is a race that the caller looks at again. */
function checkPlace(current: OpenFile | null, text: string, expectation: WritePrecondition): void {
  const { ifVersion, overwrite, create } = expectation;
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

/** The name itself is on the disk; where the folder may not be opened for that, it is when the system gets to it. */
async function syncDirectory({ directory }: Place): Promise<void> {
  let fd: number;
  try {
    fd = openSync(directory.selfPath, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (error) {
    if (errnoOf(error) === 'EACCES') return;
    throw error;
  }
  try {
    await syncFile(fd);
  } finally {
    closeSync(fd);
  }
}
