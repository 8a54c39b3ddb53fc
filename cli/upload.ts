import { type FileHandle, lstat, open, readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { HoldfastError } from '../protocol/errors.ts';
import { FILE_CHUNK_BYTES } from '../protocol/files.ts';
import type { MethodName, Params, Result } from '../protocol/methods.ts';
import { encodeName } from '../protocol/paths.ts';
import { BufferPool } from '../protocol/wire/buffer-pool.ts';
import type { Context } from './context.ts';

/** Files that are on their way at a time: the wait for one disk hides behind the others. */
const AT_A_TIME = 4;
const EXECUTABLE = 0o111;

export interface UploadCounts {
  files: number;
  folders: number;
  bytes: number;
  /** Links, sockets and the like: only files and folders are sent. */
  skipped: number;
}

export interface UploadOptions {
  readonly session: string;
  /** Fail where there is a file already. */
  readonly keepExisting: boolean;
}

/** Sends local files and folders into a workspace, in the order they are found. */
export class Upload {
  readonly #context: Context;
  readonly #options: UploadOptions;
  readonly #payloads = new BufferPool();
  readonly counts: UploadCounts = { files: 0, folders: 0, bytes: 0, skipped: 0 };

  constructor(context: Context, options: UploadOptions) {
    this.#context = context;
    this.#options = options;
  }

  /** `local` is an absolute path on this machine; `remote` the path it gets. */
  async send(local: string, remote: string): Promise<void> {
    const pending = new Set<Promise<void>>();
    const walking = this.#sendAny(Buffer.from(local), remote, pending);
    await Promise.allSettled([walking]);
    // Nothing is left under way, whatever went wrong first.
    const results = await Promise.allSettled([walking, ...pending]);
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  /** What comes on standard input, as one file. */
  async sendStream(input: AsyncIterable<string | Buffer>, remote: string): Promise<void> {
    const pieces = inPieces(input);
    const first = await pieces.next();
    const content = first.done === true ? Buffer.alloc(0) : first.value;
    const second = await pieces.next();
    if (second.done === true) await this.#sendWhole(remote, content, undefined);
    else await this.#sendPieces(remote, followed(content, second.value, pieces), undefined);
    this.counts.files += 1;
  }

  async #sendAny(local: Buffer, remote: string, pending: Set<Promise<void>>): Promise<void> {
    this.#context.interrupted.throwIfAborted();
    const stat = await lstat(local).catch((cause: unknown) => {
      throw new HoldfastError('not_found', `${local.toString()} cannot be sent`, {
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
      if (pending.size >= AT_A_TIME) await Promise.race(pending);
      const sending = this.#sendFile(local, remote).finally(() => pending.delete(sending));
      pending.add(sending);
      // It is waited for at the end, or sooner; until then its failure must not count as nobody's.
      sending.catch(() => undefined);
    } else this.counts.skipped += 1;
  }

  async #sendFile(local: Buffer, remote: string): Promise<void> {
    await using file = await open(local, 'r');
    const { size, mode } = await file.stat();
    const permissions = (mode & EXECUTABLE) === 0 ? 0o644 : 0o755;
    if (size <= FILE_CHUNK_BYTES) await this.#sendWhole(remote, await file.readFile(), permissions);
    else await this.#sendPieces(remote, piecesOf(file, this.#payloads), permissions);
    this.counts.files += 1;
  }

  async #sendWhole(path: string, bytes: Buffer, mode: number | undefined): Promise<void> {
    const { session } = this.#options;
    await this.#call('files/write', { session, path, ...this.#expectation(mode) }, bytes);
    this.counts.bytes += bytes.length;
  }

  async #sendPieces(path: string, pieces: AsyncIterable<Buffer>, mode: number | undefined): Promise<void> {
    const { session } = this.#options;
    const { upload } = await this.#call('files/begin', { session, path, ...this.#expectation(mode) });
    let size = 0;
    let written: Promise<unknown> = Promise.resolve();
    try {
      for await (const bytes of pieces) {
        const before = written;
        const { length } = bytes;
        // One piece travels while the one before it is written. Once it is, nobody needs the bytes.
        written = this.#call('files/append', { session, upload, offset: size }, bytes).then(() =>
          this.#payloads.release(bytes),
        );
        written.catch(() => undefined);
        size += length;
        await before;
        this.counts.bytes += length;
        this.#context.progress.update({
          stage: 'Sending',
          done: this.counts.bytes,
          of: null,
          unit: 'bytes',
        });
      }
      await written;
    } catch (error) {
      await Promise.allSettled([written]);
      await this.#call('files/abort', { session, upload }).catch(() => undefined); // it ends with the connection as well
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

/** What a local path is called at its destination, spelled as the protocol spells names. */
export function encodedBasename(local: string): string {
  return encodeName(Buffer.from(basename(join(local, '.'))));
}

function joined(folder: Buffer, name: Buffer): Buffer {
  return Buffer.concat([folder, Buffer.from('/'), name]);
}

async function* piecesOf(file: FileHandle, payloads: BufferPool): AsyncGenerator<Buffer> {
  for (;;) {
    const { buffer, bytesRead } = await file.read(payloads.acquire(FILE_CHUNK_BYTES), 0, FILE_CHUNK_BYTES);
    if (bytesRead === 0) return;
    yield buffer.subarray(0, bytesRead);
  }
}

/** Any stream, in pieces as large as one message carries. */
async function* inPieces(input: AsyncIterable<string | Buffer>): AsyncGenerator<Buffer, void> {
  let kept: Buffer[] = [];
  let length = 0;
  for await (const chunk of input) {
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, 'utf8') : chunk;
    kept.push(bytes);
    length += bytes.length;
    while (length >= FILE_CHUNK_BYTES) {
      const all = Buffer.concat(kept);
      yield all.subarray(0, FILE_CHUNK_BYTES);
      kept = [all.subarray(FILE_CHUNK_BYTES)];
      length -= FILE_CHUNK_BYTES;
    }
  }
  if (length > 0) yield Buffer.concat(kept);
}

async function* followed(first: Buffer, second: Buffer, rest: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  yield first;
  yield second;
  yield* rest;
}
