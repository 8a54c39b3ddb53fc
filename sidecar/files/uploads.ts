import { randomBytes } from 'node:crypto';
import { HoldfastError } from '../../protocol/errors.ts';
import type { WriteResult } from '../../protocol/files.ts';
import type { StagedFile } from './staged-file.ts';
import type { WritePrecondition, WriteTarget, FileWriter } from './file-writer.ts';

const MAX_UPLOADS = 64;
/** An upload without a message for this long is abandoned. */
const IDLE_MS = 10 * 60_000;

interface Upload {
  readonly target: WriteTarget;
  readonly precondition: WritePrecondition;
  readonly staged: StagedFile;
  idle: NodeJS.Timeout;
  /** Appends and the commit, in the order of the calls. The next chunk may arrive while one is written. */
  queue: Promise<unknown>;
  waiting: number;
}

/** Writes that need several messages. They belong to a connection and end with it. */
export class Uploads {
  readonly #writer: FileWriter;
  readonly #uploads = new Map<string, Upload>();
  #closed = false;

  constructor(writer: FileWriter) {
    this.#writer = writer;
  }

  begin(target: WriteTarget, precondition: WritePrecondition): string {
    if (this.#closed) throw new HoldfastError('connection_closed', 'The connection has ended');
    if (this.#uploads.size >= MAX_UPLOADS) {
      throw new HoldfastError('overloaded', `${target.displayPath} was not written`, {
        why: `${MAX_UPLOADS} uploads are already open`,
        next: 'finish some uploads and try again',
      });
    }
    const id = randomBytes(12).toString('hex');
    const staged = this.#writer.stage(target, precondition);
    this.#uploads.set(id, {
      target,
      precondition,
      staged,
      idle: this.#idle(id),
      queue: Promise.resolve(),
      waiting: 0,
    });
    return id;
  }

  /** `offset` must be the current size. Returns the new size. */
  append(id: string, offset: number, bytes: Uint8Array): Promise<number> {
    return this.#use(id, async ({ staged, target }) => {
      if (offset !== staged.size) {
        throw new HoldfastError('invalid_params', `${target.displayPath} was not extended`, {
          why: `the upload has ${staged.size} bytes so far, not ${offset}`,
          next: 'send the chunks in order, one after the other',
          details: { size: staged.size },
        });
      }
      await staged.append(bytes);
      return staged.size;
    });
  }

  /** Ends the upload, whether it succeeds or not. */
  commit(id: string, size: number): Promise<WriteResult> {
    return this.#use(id, async ({ staged, target, precondition }) => {
      try {
        if (size !== staged.size) {
          throw new HoldfastError('invalid_params', `${target.displayPath} was not written`, {
            why: `only ${staged.size} of ${size} bytes were received`,
            next: 'start the upload again',
          });
        }
        return await this.#writer.commit(target, precondition, staged);
      } finally {
        this.#end(id);
      }
    });
  }

  abort(id: string): void {
    if (this.#get(id).waiting > 0) {
      throw new HoldfastError('conflict', 'The upload is in use', { next: 'wait for the earlier chunks' });
    }
    this.#end(id);
  }

  /** The path of an upload, for errors. */
  pathOf(id: string): string {
    return this.#get(id).target.displayPath;
  }

  close(): void {
    this.#closed = true;
    for (const [id, { waiting }] of this.#uploads) if (waiting === 0) this.#end(id);
  }

  async #use<T>(id: string, work: (upload: Upload) => Promise<T>): Promise<T> {
    const upload = this.#get(id);
    clearTimeout(upload.idle);
    upload.waiting += 1;
    const mine = upload.queue.then(async () => {
      try {
        if (this.#uploads.get(id) !== upload) throw unknown();
        return await work(upload);
      } finally {
        upload.waiting -= 1;
        if (upload.waiting === 0 && this.#uploads.get(id) === upload) {
          if (this.#closed) this.#end(id);
          else upload.idle = this.#idle(id);
        }
      }
    });
    upload.queue = mine.catch(() => undefined);
    return await mine;
  }

  #get(id: string): Upload {
    const upload = this.#uploads.get(id);
    if (upload !== undefined) return upload;
    throw unknown();
  }

  #end(id: string): void {
    const upload = this.#uploads.get(id);
    if (upload === undefined) return;
    clearTimeout(upload.idle);
    this.#uploads.delete(id);
    this.#writer.discard(upload.staged);
  }

  #idle(id: string): NodeJS.Timeout {
    return setTimeout(() => this.#end(id), IDLE_MS).unref();
  }
}

function unknown(): HoldfastError {
  return new HoldfastError('not_found', 'This upload does not exist', {
    why: 'it was committed, aborted, or its connection has ended',
    next: 'start the upload again',
  });
}
