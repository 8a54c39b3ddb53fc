import { createHash, type Hash, randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HoldfastError } from '../protocol/errors.ts';
import { HANDOFF_LIMITS } from '../protocol/handoff.ts';
import { type Change, type HandoffConnection, readContents, type TreeNames } from './changes.ts';

const PIECE_BYTES = 2 ** 20;

/** A content that is on this machine. */
export interface Content {
  readonly start: number;
  readonly size: number;
  /** Its id as a git blob (SHA-1). */
  readonly blob: string;
}

interface OpenContent {
  readonly change: Change;
  readonly start: number;
  size: number;
  readonly hash: Hash;
}

/**
 * Contents of changed files, in one private temporary file without a name: nothing of it stays behind however the process
 * ends.
 */
export class Contents {
  readonly #file: FileHandle;
  readonly #bySide = {
    before: new Map<Change, Content>(),
    after: new Map<Change, Content>(),
  };
  #end = 0;
  /** Fetches that run, and the place before which everything was written when none ran. */
  #fetching = 0;
  #written = 0;
  /** What was read last, with what follows it. */
  #ahead: { readonly start: number; readonly bytes: Buffer } = { start: 0, bytes: Buffer.alloc(0) };

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  static async create(): Promise<Contents> {
    const path = join(tmpdir(), `holdfast-handoff-${randomBytes(12).toString('hex')}`);
    const file = await open(path, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600);
    try {
      await unlink(path);
    } catch (error) {
      await file.close();
      throw error;
    }
    return new Contents(file);
  }

  async close(): Promise<void> {
    await this.#file.close();
  }

  /** Fetches what is not here yet. Errors: `output_limit`. */
  async fetch(
    connection: HandoffConnection,
    trees: TreeNames,
    side: 'before' | 'after',
    changes: readonly Change[],
    {
      signal,
      onBytes,
    }: { readonly signal?: AbortSignal | undefined; readonly onBytes?: (bytes: number) => void },
  ): Promise<void> {
    const known = this.#bySide[side];
    const wanted = changes.filter((change) => !known.has(change) && change[side] !== null);
    const total = wanted.reduce((sum, change) => sum + (change[side]?.size ?? 0), 0);
    if (this.#end + total > HANDOFF_LIMITS.bytes) {
      throw new HoldfastError('output_limit', 'The handoff was not begun', {
        why: `the changed files have more than ${HANDOFF_LIMITS.bytes / 2 ** 20} MiB together`,
        next: 'choose some of them with --paths',
      });
    }
    // The place of every byte is known before the first one is here, so that two sides can be fetched at once.
    let end = this.#end;
    this.#end += total;
    this.#fetching += 1;
    let current: OpenContent | undefined;
    const finish = (): void => {
      if (current === undefined) return;
      const { change, start, size, hash } = current;
      if (size !== (change[side]?.size ?? 0)) {
        throw new HoldfastError(
          'protocol_error',
          'The supervisor sent a content of another size than it had listed',
        );
      }
      known.set(change, { start, size, blob: hash.digest('hex') });
    };
    for await (const { bytes, pieces } of readContents(connection, trees, side, wanted, signal)) {
      await this.#writeFully(bytes, end);
      let from = 0;
      for (const { change, size } of pieces) {
        if (current?.change !== change) {
          finish();
          const hash = createHash('sha1').update(`blob ${change[side]?.size ?? 0}\0`);
          current = { change, start: end + from, size: 0, hash };
        }
        current.hash.update(bytes.subarray(from, from + size));
        current.size += size;
        from += size;
      }
      end += bytes.length;
      onBytes?.(bytes.length);
    }
    finish();
    this.#fetching -= 1;
    if (this.#fetching === 0) this.#written = this.#end;
  }

  of(change: Change, side: 'before' | 'after'): Content {
    const content = this.#bySide[side].get(change);
    if (content === undefined) throw new HoldfastError('internal', 'A content was not fetched');
    return content;
  }

  async *read({ start, size }: Content): AsyncGenerator<Buffer, void, undefined> {
    for (let at = 0; at < size;) {
      const piece = await this.#window(start + at, size - at);
      yield piece;
      at += piece.length;
    }
  }

  /** Some of `most` bytes from a place on. What follows them is read along: contents are mostly asked for in order. */
  async #window(at: number, most: number): Promise<Buffer> {
    let from = at - this.#ahead.start;
    if (from < 0 || from >= this.#ahead.bytes.length) {
      const bytes = Buffer.allocUnsafe(Math.min(PIECE_BYTES, Math.max(most, this.#written - at)));
      await this.#readFully(bytes, at);
      this.#ahead = { start: at, bytes };
      from = 0;
    }
    return this.#ahead.bytes.subarray(from, from + most);
  }

  /** For contents that are known to be small. */
  async readWhole({ start, size }: Content): Promise<Buffer> {
    const buffer = Buffer.allocUnsafe(size);
    await this.#readFully(buffer, start);
    return buffer;
  }

  /** A disk that gets full takes a part first, and fails with the next. */
  async #writeFully(bytes: Uint8Array, position: number): Promise<void> {
    for (let written = 0; written < bytes.length;) {
      const rest = bytes.length - written;
      written += (await this.#file.write(bytes, written, rest, position + written)).bytesWritten;
    }
  }

  async #readFully(buffer: Buffer, position: number): Promise<void> {
    for (let filled = 0; filled < buffer.length;) {
      const { bytesRead } = await this.#file.read(buffer, filled, buffer.length - filled, position + filled);
      if (bytesRead === 0) throw new HoldfastError('internal', 'A temporary file is shorter than written');
      filled += bytesRead;
    }
  }
}
