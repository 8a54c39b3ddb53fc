import { MAX_OMITTED_PATHS, PATCH_CHUNK_BYTES } from '../../../protocol/snapshots.ts';
import type { Comparison } from '../compare/comparison.ts';
import type { PathSegments } from '../compare/differences.ts';
import type { ObjectReader } from '../../../snapshot-format/objects.ts';
import { LineThread } from './line-thread.ts';
import { isTooLarge, patchChangeOf } from './patch-changes.ts';
import { writePatch } from './write-patch.ts';

/** A chunk of a patch. */
export interface PatchChunk {
  readonly bytes: Buffer;
  /** The last path whose changes have been returned completely; null while there is none. */
  readonly resumeAfter: PathSegments | null;
  /** The chunk ends inside the changes of the next path: only this stream can continue. */
  readonly isCut: boolean;
  readonly isLast: boolean;
  /** How many paths were omitted because git would reject them or they are too large, and the first of them. */
  readonly omitted: number;
  readonly omittedPaths: readonly PathSegments[];
}

/** Writes one patch in chunks. The owner calls `close`. */
export class PatchStream {
  readonly #lines: LineThread;
  readonly #parts: AsyncGenerator<{ path: PathSegments; bytes: Buffer | null }, void, undefined>;
  #buffered: Buffer[] = [];
  #bufferedBytes = 0;
  #resumeAfter: PathSegments | null;
  #leftOut = 0;
  #omittedPaths: PathSegments[] = [];

  /** `lineWorker`: path of the worker program that compares lines. */
  constructor(
    comparison: Comparison,
    reader: ObjectReader,
    resumeAfter: PathSegments | null,
    lineWorker: string | URL,
  ) {
    this.#lines = new LineThread(lineWorker);
    this.#resumeAfter = resumeAfter;
    this.#parts = this.#write(comparison, reader, resumeAfter);
  }

  /** The next chunk, as large as one answer carries. One call at a time. */
  async next(): Promise<PatchChunk> {
    let isLast = false;
    let isCut = this.#bufferedBytes > 0;
    while (this.#bufferedBytes < PATCH_CHUNK_BYTES) {
      const part = await this.#parts.next();
      if (part.done === true) {
        isLast = true;
        isCut = false;
        break;
      }
      const { path, bytes } = part.value;
      isCut = bytes !== null;
      if (bytes === null) this.#resumeAfter = path;
      else {
        this.#buffered.push(bytes);
        this.#bufferedBytes += bytes.length;
      }
    }
    const all = Buffer.concat(this.#buffered);
    const bytes = all.subarray(0, PATCH_CHUNK_BYTES);
    const rest = all.subarray(bytes.length);
    this.#buffered = rest.length === 0 ? [] : [rest];
    this.#bufferedBytes = rest.length;
    const leftOut = this.#leftOut;
    const omittedPaths = this.#omittedPaths;
    this.#leftOut = 0;
    this.#omittedPaths = [];
    return {
      bytes,
      resumeAfter: this.#resumeAfter,
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

  /** The bytes of each path, followed by null. */
  async *#write(
    comparison: Comparison,
    reader: ObjectReader,
    resumeAfter: PathSegments | null,
  ): AsyncGenerator<{ path: PathSegments; bytes: Buffer | null }, void, undefined> {
    const leaveOut = (path: PathSegments): void => {
      this.#leftOut += 1;
      if (this.#omittedPaths.length < MAX_OMITTED_PATHS) this.#omittedPaths.push(path);
    };
    for await (const difference of comparison.differences(resumeAfter)) {
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
