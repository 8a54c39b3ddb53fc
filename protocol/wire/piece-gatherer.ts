/**
 * Puts the pieces of one chunk together again: a chunk may have thousands of frames of one byte, and each piece that is
 * queued by itself costs a few hundred bytes.
 */
export class PieceGatherer {
  #first: Buffer | null = null;
  #all: Buffer | null = null;
  #bytes = 0;

  /** Adds the next piece; all pieces together have at most `mostBytes`, which is the same for all of them. */
  add(piece: Buffer, mostBytes: number): void {
    if (this.#bytes === 0) this.#first = piece;
    else {
      if (this.#all === null) {
        this.#all = Buffer.allocUnsafeSlow(mostBytes);
        this.#first?.copy(this.#all);
      }
      piece.copy(this.#all, this.#bytes);
    }
    this.#bytes += piece.length;
  }

  /** All pieces since the last call, as one; null without any. A single piece is returned as it is, without a copy. */
  take(): Buffer | null {
    const [first, all, bytes] = [this.#first, this.#all, this.#bytes];
    this.#first = null;
    this.#all = null;
    this.#bytes = 0;
    if (all === null) return first;
    // A few bytes must not keep the memory of a whole chunk.
    return bytes * 2 < all.length ? Buffer.from(all.subarray(0, bytes)) : all.subarray(0, bytes);
  }
}
