import { type FileHandle, lstat, open, readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { HoldfastError } from '../protocol/errors.ts';
import { FILE_CHUNK_BYTES } from '../protocol/files.ts';
import type { MethodName, Params, Result } from '../protocol/methods.ts';
import { encodeName } from '../protocol/paths.ts';
import { BufferPool } from '../protocol/wire/buffer-pool.ts';
import type { Context } from './context.ts';

/** Number of concurrent uploads, which hides the latency of the disk. */
const MAX_CONCURRENT_UPLOADS = 4;
const EXECUTABLE = 0o111;

export interface UploadCounts {
  files: number;
  folders: number;
  bytes: number;
  /** Links and special files, which are not uploaded. */
  skipped: number;
}

export interface UploadOptions {
  readonly session: string;
  /** Fail if a file exists. */
  readonly keepExisting: boolean;
}

/** Uploads local files and folders into a workspace. */
export class Upload {
  readonly #context: Context;
  readonly #options: UploadOptions;
  readonly #payloads = new BufferPool();
  readonly counts: UploadCounts = { files: 0, folders: 0, bytes: 0, skipped: 0 };

  constructor(context: Context, options: UploadOptions) {
    this.#context = context;
    this.#options = options;
  }

  /** Uploads the file or folder at the absolute path `local` to `remote`. */
  async send(local: string, remote: string): Promise<void> {
    const pending = new Set<Promise<void>>();
    const walking = this.#sendAny(Buffer.from(local), remote, pending);
    await Promise.allSettled([walking]);
    // Wait for all uploads to settle, even after a failure.
    const results = await Promise.allSettled([walking, ...pending]);
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  /** Uploads a stream as one file. */
  async sendStream(input: AsyncIterable<string | Buffer>, remote: string): Promise<void> {
    const chunks = inChunks(input);
    const first = await chunks.next();
    const content = first.done === true ? Buffer.alloc(0) : first.value;
    const second = await chunks.next();
    if (second.done === true) await this.#sendWhole(remote, content, undefined);
    else await this.#sendChunks(remote, prepend(content, second.value, chunks), undefined);
    this.counts.files += 1;
  }

  async #sendAny(local: Buffer, remote: string, pending: Set<Promise<void>>): Promise<void> {
    this.#context.interrupted.throwIfAborted();
    const stat = await lstat(local).catch((cause: unknown) => {
      throw new HoldfastError('not_found', `${local.toString()} cannot be uploaded`, {
        why: cause instanceof Error ? cause.message : undefined,
        cause,
      });
    });
    if (stat.isDirectory()) {
      await this.#call('files/mkdir', { session: this.#options.session, path: remote, parents: true });
      this.counts.folders += 1;
      for (const name of (await readdir(local, { encoding: 'buffer' })).sort((one, other) =>
        one.compare(other),
      )) {
        await this.#sendAny(joined(local, name), `${remote}/${encodeName(name)}`, pending);
      }
    } else if (stat.isFile()) {
      if (pending.size >= MAX_CONCURRENT_UPLOADS) await Promise.race(pending);
      const sending = this.#sendFile(local, remote).finally(() => pending.delete(sending));
      pending.add(sending);
      // Awaited in `send` or sooner. This handler prevents an unhandled rejection until then.
      sending.catch(() => undefined);
    } else this.counts.skipped += 1;
  }

  async #sendFile(local: Buffer, remote: string): Promise<void> {
    await using file = await open(local, 'r');
    const { size, mode } = await file.stat();
    const permissions = (mode & EXECUTABLE) === 0 ? 0o644 : 0o755;
    if (size <= FILE_CHUNK_BYTES) await this.#sendWhole(remote, await file.readFile(), permissions);
    else await this.#sendChunks(remote, chunksOf(file, this.#payloads), permissions);
    this.counts.files += 1;
  }

  async #sendWhole(path: string, bytes: Buffer, mode: number | undefined): Promise<void> {
    const { session } = this.#options;
    await this.#call('files/write', { session, path, ...this.#expectation(mode) }, bytes);
    this.counts.bytes += bytes.length;
  }

  async #sendChunks(path: string, chunks: AsyncIterable<Buffer>, mode: number | undefined): Promise<void> {
    const { session } = this.#options;
    const { upload } = await this.#call('files/begin', { session, path, ...this.#expectation(mode) });
    let size = 0;
    let written: Promise<unknown> = Promise.resolve();
    try {
      for await (const bytes of chunks) {
        const before = written;
        const { length } = bytes;
        // One chunk is sent while the previous one is written. The buffer is released when its chunk was written.
        written = this.#call('files/append', { session, upload, offset: size }, bytes).then(() =>
          this.#payloads.release(bytes),
        );
        written.catch(() => undefined);
        size += length;
        await before;
        this.counts.bytes += length;
        this.#context.progress.update({
          stage: 'Uploading',
          done: this.counts.bytes,
          of: null,
          unit: 'bytes',
        });
      }
      await written;
    } catch (error) {
      await Promise.allSettled([written]);
      await this.#call('files/abort', { session, upload }).catch(() => undefined); // the end of the connection aborts it as well
      throw error;
    }
    await this.#call('files/commit', { session, upload, size });
  }

  #expectation(mode: number | undefined): { create: true; overwrite: boolean; mode?: number } {
    return { create: true, overwrite: !this.#options.keepExisting, ...(mode === undefined ? {} : { mode }) };
  }

  #call<M extends SendMethod>(method: M, params: Params<M>, bytes?: Buffer): Promise<Result<M>> {
    return this.#context.client().call(method, params, { signal: this.#context.interrupted, bytes });
  }
}

type SendMethod = Extract<MethodName, `files/${string}`>;

/** The base name of a local path in the encoding of the protocol. */
export function encodedBasename(local: string): string {
  return encodeName(Buffer.from(basename(join(local, '.'))));
}

function joined(folder: Buffer, name: Buffer): Buffer {
  return Buffer.concat([folder, Buffer.from('/'), name]);
}

async function* chunksOf(file: FileHandle, payloads: BufferPool): AsyncGenerator<Buffer> {
  for (;;) {
    const { buffer, bytesRead } = await file.read(payloads.acquire(FILE_CHUNK_BYTES), 0, FILE_CHUNK_BYTES);
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
  }
}

/** Splits any stream into chunks of the maximum payload size. */
async function* inChunks(input: AsyncIterable<string | Buffer>): AsyncGenerator<Buffer, void> {
  let pending: Buffer[] = [];
  let length = 0;
  for await (const chunk of input) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, 'utf8') : chunk;
    pending.push(bytes);
    length += bytes.length;
    while (length >= FILE_CHUNK_BYTES) {
      const all = Buffer.concat(pending);
      yield all.subarray(0, FILE_CHUNK_BYTES);
      pending = [all.subarray(FILE_CHUNK_BYTES)];
      length -= FILE_CHUNK_BYTES;
    }
  }
  if (length > 0) yield Buffer.concat(pending);
}

async function* prepend(first: Buffer, second: Buffer, rest: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  yield first;
  yield second;
  yield* rest;
}
