import { type FileHandle, mkdir, open, rename, rm, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { HoldfastError } from '../../../protocol/errors.ts';
import { FRAME_LIMITS } from '../../../protocol/wire/limits.ts';
import { failpoint } from '../../base/failpoints.ts';
import { storageError } from '../../store/storage-error.ts';

const MIB = 2 ** 20;
const MAX_BYTES = 256 * MIB;
/** The cache only saves time, so it is not written when the disk has less free space than this. */
const MIN_FREE_BYTES = 256 * MIB;

/**
 * The scan cache that a session's sidecar leaves for the next one (see `cache/*`). Its bytes are opaque to the
 * supervisor. The next sidecar checks everything in them, so they need not be durable. The owner calls `close`.
 */
export class ScanCacheFile {
  readonly #directory: string;
  readonly #path: string;
  #reading: FileHandle | null = null;
  #writing: FileHandle | null = null;
  #length = 0;
  readonly #maxBytes: number;
  #queue: Promise<unknown> = Promise.resolve();

  /** `lineage`: the directory of the lineage's store. */
  constructor(lineage: string, sessionId: string, maxBytes = MAX_BYTES) {
    this.#maxBytes = maxBytes;
    this.#directory = join(lineage, 'scans');
    this.#path = join(this.#directory, sessionId);
  }

  /** The bytes at `offset`, as many as one message carries; none at the end or without a cache. */
  async read(offset: number): Promise<Buffer> {
    this.#reading ??= await open(this.#path, 'r').catch(() => null);
    if (this.#reading === null) return Buffer.alloc(0);
    const { size } = await this.#reading.stat();
    const bytes = Buffer.allocUnsafe(Math.max(0, Math.min(FRAME_LIMITS.payloadBytes, size - offset)));
    const { bytesRead } = await this.#reading.read(bytes, 0, bytes.length, offset);
    return bytes.subarray(0, bytesRead);
  }

  /** Appends bytes to a new cache. Errors: `invalid_params`, `no_space`. */
  put(offset: number, bytes: Buffer): Promise<void> {
    return this.#enqueue(() => this.#put(offset, bytes));
  }

  /** Replaces the old cache with the new one. */
  seal(bytes: number): Promise<void> {
    return this.#enqueue(() => this.#seal(bytes));
  }

  async #put(offset: number, bytes: Buffer): Promise<void> {
    try {
      if (offset === 0) await this.#startWriting();
      if (this.#writing === null || offset !== this.#length)
        throw rejected('bytes that do not continue the cache');
      if (offset + bytes.length > this.#maxBytes) throw rejected(`more than ${this.#maxBytes} bytes`);
      await this.#writing.appendFile(bytes);
      this.#length += bytes.length;
    } catch (error) {
      throw storageError(error, 'The scan cache could not be saved');
    }
  }

  async #seal(bytes: number): Promise<void> {
    if (this.#writing === null || bytes !== this.#length)
      throw rejected('a length that differs from the bytes sent');
    await this.#writing.close();
    this.#writing = null;
    await failpoint('scans.before-seal');
    await rename(this.#incoming, this.#path);
  }

  /** Closes the files and deletes an unsealed cache. */
  async close(): Promise<void> {
    await this.#queue;
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

  /** A file that a killed supervisor left here is overwritten. */
  get #incoming(): string {
    return `${this.#path}.incoming`;
  }

  /** Runs calls one after another, because the sidecar pipelines them. */
  #enqueue(act: () => Promise<void>): Promise<void> {
    const mine = this.#queue.then(act);
    this.#queue = mine.catch(() => undefined);
    return mine;
  }

  async #startWriting(): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const { bavail, bsize } = await statfs(this.#directory);
    if (bavail * bsize < MIN_FREE_BYTES) {
      throw new HoldfastError('no_space', 'The scan cache was not saved', {
        why: "the home's disk is nearly full",
      });
    }
    await this.#writing?.close();
    this.#length = 0;
    this.#writing = await open(this.#incoming, 'w', 0o600);
  }
}

function rejected(what: string): HoldfastError {
  return new HoldfastError('invalid_params', 'The scan cache was rejected', {
    why: `it sent ${what}`,
  });
}
