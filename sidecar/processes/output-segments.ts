import { closeSync, fstatSync, mkdirSync, openSync, readSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';

const SEGMENT_BYTES = 2 ** 20;

interface Segment {
  /** Offset of its first byte in the whole output. */
  readonly at: number;
  readonly fd: number;
  bytes: number;
}

/** Moves bytes to a file at an offset: the number moved, or anything else to stop. */
type Move<T> = (file: number, offset: number, bytes: number) => number | T;

/**
 * The output of one stream of a process, in files that only the sidecar can reach. Whole segments are removed behind
 * the acknowledged offset. A segment's size is the only record of its end, so killing the sidecar loses nothing. Nothing
 * is synced: the process does not survive the machine.
 */
export class OutputSegments {
  readonly #folder: string;
  readonly #segments: Segment[] = [];
  #acknowledged = 0;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /** Continues with the segments that an earlier sidecar left. */
  static open(folder: string): OutputSegments {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const output = new OutputSegments(folder);
    const names = readdirSync(folder)
      .filter((name) => /^[0-9]{16}$/.test(name))
      .sort();
    for (const name of names) {
      const fd = openSync(join(folder, name), 'r+');
      output.#segments.push({ at: Number(name), fd, bytes: fstatSync(fd).size });
    }
    output.#acknowledged = output.#segments[0]?.at ?? 0;
    return output;
  }

  /** Offset of the first byte that has not been acknowledged. */
  get start(): number {
    return this.#acknowledged;
  }

  get end(): number {
    const last = this.#segments.at(-1);
    return last === undefined ? 0 : last.at + last.bytes;
  }

  /** Appends what `move` moves, once. Errors: those of the system, such as ENOSPC; then nothing is appended. */
  append<T>(limit: number, move: Move<T>): number | T {
    const last = this.#segments.at(-1);
    const segment = last === undefined || last.bytes >= SEGMENT_BYTES ? this.#next() : last;
    const moved = move(segment.fd, segment.bytes, Math.min(limit, SEGMENT_BYTES - segment.bytes));
    if (typeof moved === 'number') segment.bytes += moved;
    return moved;
  }

  /** Bytes from `offset`, or from the first that has not been acknowledged. */
  read(offset: number, limit: number): { readonly offset: number; readonly bytes: Buffer } {
    const wanted = Math.max(offset, this.#acknowledged);
    for (const segment of this.#segments) {
      if (wanted >= segment.at + segment.bytes) continue;
      const buffer = Buffer.allocUnsafe(Math.min(limit, segment.at + segment.bytes - wanted));
      const length = readSync(segment.fd, buffer, 0, buffer.length, wanted - segment.at);
      return { offset: wanted, bytes: buffer.subarray(0, length) };
    }
    return { offset: wanted, bytes: Buffer.alloc(0) };
  }

  /** The last segment stays, because its name and size are the record of the end. */
  acknowledge(offset: number): void {
    this.#acknowledged = Math.max(this.#acknowledged, Math.min(offset, this.end));
    while (this.#segments.length > 1) {
      const [oldest] = this.#segments;
      if (oldest === undefined || oldest.at + oldest.bytes > this.#acknowledged) return;
      this.#segments.shift();
      closeSync(oldest.fd);
      rmSync(this.#path(oldest.at), { force: true });
    }
  }

  close(): void {
    for (const { fd } of this.#segments.splice(0)) closeSync(fd);
  }

  #next(): Segment {
    const at = this.end;
    const segment = { at, fd: openSync(this.#path(at), 'w+', 0o600), bytes: 0 };
    this.#segments.push(segment);
    return segment;
  }

  #path(at: number): string {
    return join(this.#folder, String(at).padStart(16, '0'));
  }
}
