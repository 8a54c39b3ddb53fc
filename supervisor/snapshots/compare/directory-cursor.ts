import { parseTree, type TreeEntry } from '../../../snapshot-format/entries.ts';
import { snapshotDamaged, OBJECT_KINDS, type ObjectReader } from '../../../snapshot-format/objects.ts';
import { type Piece, piecesOf, type ContentRef } from '../../../snapshot-format/content-ref.ts';

/** Goes through the entries of one directory, and can pass over a whole piece of it without reading it. */
export class DirectoryCursor {
  readonly #reader: ObjectReader;
  readonly #pieces: AsyncGenerator<Piece, void, undefined> | null;
  #ahead: Piece | null = null;
  #isOpen = false;
  #entries: readonly TreeEntry[] = [];
  #at = 0;
  #last: Buffer | null = null;

  /** Without a ref there is no directory, and so no entry. */
  constructor(reader: ObjectReader, content: ContentRef | null) {
    this.#reader = reader;
    this.#pieces = content === null ? null : piecesOf(reader, content);
  }

  /** The next entry of the piece that is open; null where the piece, or all, is at its end. */
  get entry(): TreeEntry | null {
    return this.#entries[this.#at] ?? null;
  }

  advance(): void {
    this.#at += 1;
  }

  /** The piece that comes next, where none is open; null at the end. */
  async peekPiece(): Promise<Piece | null> {
    if (!this.#isOpen) {
      this.#isOpen = true;
      await this.#look();
    }
    return this.#ahead;
  }

  /** Passes over the piece that comes next. */
  async skipPiece(): Promise<void> {
    await this.#look();
  }

  /** Reads the piece that comes next, if there is one. */
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
    await this.#look();
  }

  async #look(): Promise<void> {
    const next = await this.#pieces?.next();
    this.#ahead = next?.done === false ? next.value : null;
  }
}

/** Goes on to where the two sides may differ: passes over the pieces that both have, where both are between two pieces. */
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
