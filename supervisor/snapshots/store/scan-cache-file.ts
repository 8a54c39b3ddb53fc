import { type FileHandle, mkdir, open, rename, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { HoldfastError } from '../../../protocol/errors.ts';
import { FRAME_LIMITS } from '../../../protocol/wire/limits.ts';
import { failpoint } from '../../base/failpoints.ts';
import { storageError } from '../../store/storage-error.ts';

const MIB = 2 ** 20;
const MOST_BYTES = 256 * MIB;
/** It is there to save time only: on a disk with less than this it is not written. */
const LEFT_FREE = 256 * MIB;

/**
 * What the sidecars of a session leave for the next one, see `cache/*`: bytes that the supervisor keeps and never looks into. The
 * next sidecar believes nothing in them that it has not checked, so they need not be durable. Its owner closes it.
 */
export class ScanCacheFile {
  readonly #folder: string;
  readonly #path: string;
  #reading: FileHandle | null = null;
  #writing: FileHandle | null = null;
  #length = 0;
  readonly #mostBytes: number;
  #turn: Promise<unknown> = Promise.resolve();

  /** `lineage`: the folder of its store. */
  constructor(lineage: string, sessionId: string, mostBytes = MOST_BYTES) {
    this.#mostBytes = mostBytes;
    this.#folder = join(lineage, 'scans');
    this.#path = join(this.#folder, sessionId);
  }

  /** The next bytes, as many as one message carries; none at the end, or where there is none. */
  async read(offset: number): Promise<Buffer> {
    this.#reading ??= await open(this.#path, 'r').catch(() => null);
    if (this.#reading === null) return Buffer.alloc(0);
    const { size } = await this.#reading.stat();
    const bytes = Buffer.allocUnsafe(Math.max(0, Math.min(FRAME_LIMITS.payloadBytes, size - offset)));
    const { bytesRead } = await this.#reading.read(bytes, 0, bytes.length, offset);
    return bytes.subarray(0, bytesRead);
  }

  /** The next bytes of another one. Errors: `invalid_params`, `no_space`. */
  put(offset: number, bytes: Buffer): Promise<void> {
    return this.#inTurn(() => this.#put(offset, bytes));
  }

  /** It takes the place of the one before. */
  seal(bytes: number): Promise<void> {
    return this.#inTurn(() => this.#seal(bytes));
  }

  async #put(offset: number, bytes: Buffer): Promise<void> {
    try {
      if (offset === 0) await this.#begin();
      if (this.#writing === null || offset !== this.#length)
        throw refused('bytes that do not follow those before');
      if (offset + bytes.length > this.#mostBytes) throw refused(`more than ${this.#mostBytes} bytes`);
      await this.#writing.appendFile(bytes);
      this.#length += bytes.length;
    } catch (error) {
      throw storageError(error, 'What a scan knows could not be kept');
    }
  }

  async #seal(bytes: number): Promise<void> {
    if (this.#writing === null || bytes !== this.#length) throw refused('another length than it has');
    await this.#writing.close();
    this.#writing = null;
    await failpoint('scans.before-seal');
    await rename(this.#incoming, this.#path);
  }

  /** What was not sealed goes. */
  async close(): Promise<void> {
    await this.#turn;
    await this.#reading?.close();
    this.#reading = null;
    if (this.#writing === null) return;
    await this.#writing.close();
    this.#writing = null;
    await rm(this.#incoming, { force: true });
  }

  async remove(): Promise<void> {
    await rm(this.#path, { force: true });
    await rm(this.#incoming, { force: true });
  }

  /** One that a supervisor left when it was killed is written over. */
  get #incoming(): string {
    return `${this.#path}.incoming`;
  }

  /** A sidecar need not wait for an answer before it asks again. */
  #inTurn(act: () => Promise<void>): Promise<void> {
    const mine = this.#turn.then(act);
    this.#turn = mine.catch(() => undefined);
    return mine;
  }

  async #begin(): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    const { bavail, bsize } = await statfs(this.#folder);
    if (bavail * bsize < LEFT_FREE) {
      throw new HoldfastError('no_space', 'What a scan knows is not kept', {
        why: 'the disk of the home is nearly full',
      });
    }
    await this.#writing?.close();
    this.#length = 0;
    this.#writing = await open(this.#incoming, 'w', 0o600);
  }
}

function refused(what: string): HoldfastError {
  return new HoldfastError('invalid_params', 'The cache of a sidecar is not kept', {
    why: `it sent ${what}`,
  });
}
