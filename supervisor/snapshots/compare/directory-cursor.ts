import { parseTree, type TreeEntry } from '../../../snapshot-format/entries.ts';
import { snapshotDamaged, OBJECT_KINDS, type ObjectReader } from '../../../snapshot-format/objects.ts';
import { type Piece, piecesOf, type ContentRef } from '../../../snapshot-format/content-ref.ts';

/** Iterates over the entries of one directory and can skip a whole piece without reading it. */
export class DirectoryCursor {
  readonly #reader: ObjectReader;
  readonly #pieces: AsyncGenerator<Piece, void, undefined> | null;
  #next: Piece | null = null;
  #isStarted = false;
  #entries: readonly TreeEntry[] = [];
  #at = 0;
  #last: Buffer | null = null;

  /** `content` null: there is no directory, and so no entries. */
  constructor(reader: ObjectReader, content: ContentRef | null) {
    this.#reader = reader;
    this.#pieces = content === null ? null : piecesOf(reader, content);
  }

  /** The next entry of the open piece; null at the end of the piece or directory. */
  get entry(): TreeEntry | null {
    return this.#entries[this.#at] ?? null;
  }

  advance(): void {
    this.#at += 1;
  }

  /** The next unopened piece; null at the end. */
  async peekPiece(): Promise<Piece | null> {
    if (!this.#isStarted) {
      this.#isStarted = true;
      await this.#readAhead();
    }
    return this.#next;
  }

  /** Skips the next piece. */
  async skipPiece(): Promise<void> {
    await this.#readAhead();
  }

  /** Reads the next piece, if there is one. */
  async openPiece(): Promise<void> {
    const piece = await this.peekPiece();
    if (piece === null) return;
    this.#entries = parseTree(await this.#reader.read(piece.hash, OBJECT_KINDS.tree));
    this.#at = 0;
    const first = this.#entries[0]?.name;
    if (this.#last !== null && first !== undefined && this.#last.compare(first) >= 0) {
      throw snapshotDamaged('names are out of order', { object: piece.hash.toString('hex') });
    }
    this.#last = this.#entries.at(-1)?.name ?? null;
    await this.#readAhead();
  }

  async #readAhead(): Promise<void> {
    const next = await this.#pieces?.next();
    this.#next = next?.done === false ? next.value : null;
  }
}

/** Advances to where the two sides may differ: skips equal pieces while both sides are between two pieces. */
export async function skipEqualPieces(one: DirectoryCursor, other: DirectoryCursor): Promise<void> {
  while (one.entry === null && other.entry === null) {
    const mine = await one.peekPiece();
    const theirs = await other.peekPiece();
    if (mine === null || theirs === null || !mine.hash.equals(theirs.hash)) break;
    await one.skipPiece();
    await other.skipPiece();
  }
  if (one.entry === null) await one.openPiece();
  if (other.entry === null) await other.openPiece();
}
