import { MAX_OMITTED_PATHS, PATCH_CHUNK_BYTES } from '../../../protocol/snapshots.ts';
import type { Comparison } from '../compare/comparison.ts';
import type { PathSegments } from '../compare/differences.ts';
import type { ObjectReader } from '../../../snapshot-format/objects.ts';
import { LineThread } from './line-thread.ts';
import { isTooLarge, patchChangeOf } from './patch-changes.ts';
import { writePatch } from './write-patch.ts';

/** A part of a patch. */
export interface PatchPiece {
  readonly bytes: Buffer;
  /** All that belongs to this path, and to those before it, is given; null while none is. */
  readonly resumeAfter: PathSegments | null;
  /** It ends inside of what belongs to the next path: only this stream can go on. */
  readonly isCut: boolean;
  readonly isLast: boolean;
  /** How many paths are in no patch, as git would refuse them or they are too large; and the first of them. */
  readonly omitted: number;
  readonly omittedPaths: readonly PathSegments[];
}

/** One patch while it is written. `end` it. */
export class PatchStream {
  readonly #lines: LineThread;
  readonly #parts: AsyncGenerator<{ path: PathSegments; bytes: Buffer | null }, void, undefined>;
  #left: Buffer[] = [];
  #leftBytes = 0;
  #behind: PathSegments | null;
  #leftOut = 0;
  #omittedPaths: PathSegments[] = [];

  /** `lineWorker`: the file of the thread that compares lines. */
  constructor(
    comparison: Comparison,
    reader: ObjectReader,
    behind: PathSegments | null,
    lineWorker: string | URL,
  ) {
    this.#lines = new LineThread(lineWorker);
    this.#behind = behind;
    this.#parts = this.#write(comparison, reader, behind);
  }

  /** The next bytes, as many as one answer carries. One call at a time. */
  async next(): Promise<PatchPiece> {
    let isLast = false;
    let isCut = this.#leftBytes > 0;
    while (this.#leftBytes < PATCH_CHUNK_BYTES) {
      const part = await this.#parts.next();
      if (part.done === true) {
        isLast = true;
        isCut = false;
        break;
      }
      const { path, bytes } = part.value;
      isCut = bytes !== null;
      if (bytes === null) this.#behind = path;
      else {
        this.#left.push(bytes);
        this.#leftBytes += bytes.length;
      }
    }
    const all = Buffer.concat(this.#left);
    const bytes = all.subarray(0, PATCH_CHUNK_BYTES);
    const rest = all.subarray(bytes.length);
    this.#left = rest.length === 0 ? [] : [rest];
    this.#leftBytes = rest.length;
    const leftOut = this.#leftOut;
    const omittedPaths = this.#omittedPaths;
    this.#leftOut = 0;
    this.#omittedPaths = [];
    return {
      bytes,
      resumeAfter: this.#behind,
      isCut: isCut || rest.length > 0,
      isLast: isLast && rest.length === 0,
      omitted: leftOut,
      omittedPaths,
    };
  }

  async close(): Promise<void> {
    await this.#lines.close();
    await this.#parts.return();
  }

  /** Bytes of each path, and then null. */
  async *#write(
    comparison: Comparison,
    reader: ObjectReader,
    behind: PathSegments | null,
  ): AsyncGenerator<{ path: PathSegments; bytes: Buffer | null }, void, undefined> {
    const leaveOut = (path: PathSegments): void => {
      this.#leftOut += 1;
      if (this.#omittedPaths.length < MAX_OMITTED_PATHS) this.#omittedPaths.push(path);
    };
    for await (const difference of comparison.differences(behind)) {
      const { path } = difference;
      const change = patchChangeOf(reader, difference);
      if (change !== null && isTooLarge(change)) leaveOut(path);
      else if (change !== null) {
        const parts = writePatch([change], this.#lines, () => leaveOut(path));
        for await (const bytes of parts) yield { path, bytes };
      }
      yield { path, bytes: null };
    }
  }
}
