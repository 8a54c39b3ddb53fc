import { closeSync, fstatSync, mkdirSync, openSync, readSync, readdirSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { isFullDisk } from '../files/full-disk.ts';

interface Segment {
  /** Offset of its first byte in the whole output. */
  readonly at: number;
  readonly fd: number;
  bytes: number;
}

/**
 * The last output of a terminal, in files that only the sidecar can reach, so it outlives the sidecar. It has at most
 * two segments: when the newer one is full, the older one is removed. Nothing is synced, because it need not survive
 * the machine.
 */
export class Scrollback {
  readonly #folder: string;
  readonly #segmentBytes: number;
  readonly #segments: Segment[] = [];
  #total = 0;

  private constructor(folder: string, segmentBytes: number) {
    this.#folder = folder;
    this.#segmentBytes = segmentBytes;
  }

  /** Continues with the segments that an earlier sidecar left. */
  static open(folder: string, segmentBytes: number): Scrollback {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const scrollback = new Scrollback(folder, segmentBytes);
    const names = readdirSync(folder)
      .filter((name) => /^[0-9]{16}$/.test(name))
      .sort();
    for (const name of names) {
      const fd = openSync(join(folder, name), 'r+');
      const segment = { at: Number(name), fd, bytes: fstatSync(fd).size };
      scrollback.#segments.push(segment);
      scrollback.#total = segment.at + segment.bytes;
    }
    return scrollback;
  }

  /** Offset of the first byte that is retained. */
  get start(): number {
    return this.#segments[0]?.at ?? this.#total;
  }

  get total(): number {
    return this.#total;
  }

  /** False until `begin`. */
  get hasBegun(): boolean {
    return this.#segments.length > 0;
  }

  begin(): void {
    if (!this.hasBegun) this.#next();
  }

  /** Bytes that do not fit on a full disk are skipped, but their offsets are counted. */
  append(bytes: Buffer): void {
    for (let at = 0; at < bytes.length;) {
      const last = this.#segments.at(-1);
      const segment = last === undefined || last.bytes >= this.#segmentBytes ? this.#next() : last;
      const piece = bytes.subarray(at, at + this.#segmentBytes - (segment?.bytes ?? 0));
      if (segment === null || !written(segment, piece)) {
        this.#total += bytes.length - at;
        this.#next();
        return;
      }
      at += piece.length;
      this.#total += piece.length;
    }
  }

  /** Bytes from the first retained byte at or after `offset`. */
  read(offset: number, limit: number): { readonly offset: number; readonly bytes: Buffer } {
    for (const segment of this.#segments) {
      if (offset >= segment.at + segment.bytes) continue;
      const from = Math.max(offset, segment.at);
      const buffer = Buffer.allocUnsafe(Math.min(limit, segment.at + segment.bytes - from));
      const length = readSync(segment.fd, buffer, 0, buffer.length, from - segment.at);
      return { offset: from, bytes: buffer.subarray(0, length) };
    }
    return { offset: this.#total, bytes: Buffer.alloc(0) };
  }

  close(): void {
    for (const { fd } of this.#segments.splice(0)) closeSync(fd);
  }

  /** Closes the scrollback and removes its files. */
  remove(): void {
    this.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Starts a new segment at the end of the output. Null if the disk is full. */
  #next(): Segment | null {
    while (this.#segments.length > 1) this.#drop();
    const path = join(this.#folder, String(this.#total).padStart(16, '0'));
    try {
      const segment = { at: this.#total, fd: openSync(path, 'w+', 0o600), bytes: 0 };
      this.#segments.push(segment);
      return segment;
    } catch (error) {
      if (isFullDisk(error)) return null;
      throw error;
    }
  }

  #drop(): void {
    const oldest = this.#segments.shift();
    if (oldest === undefined) return;
    closeSync(oldest.fd);
    rmSync(join(this.#folder, String(oldest.at).padStart(16, '0')), { force: true });
  }
}

function written(segment: Segment, bytes: Buffer): boolean {
  try {
    for (let at = 0; at < bytes.length;)
      at += writeSync(segment.fd, bytes, at, bytes.length - at, segment.bytes + at);
    segment.bytes += bytes.length;
    return true;
  } catch (error) {
    if (isFullDisk(error)) return false;
    throw error;
  }
}
