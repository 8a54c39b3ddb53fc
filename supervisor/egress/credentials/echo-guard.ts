import type { SecretValue } from '../../secrets/secret-store.ts';
import { ByteSearch } from './byte-search.ts';
import { encodedForms } from './encodings.ts';

/** Automatons that are kept: about a megabyte each. */
const MOST_KEPT = 16;

/** Passes the bytes of one answer on, as long as they do not repeat the credential. */
export class EchoGuard {
  readonly #search: ByteSearch;
  #state = 0;
  /** The last bytes, which may be the beginning of the credential. */
  #held: Buffer = Buffer.alloc(0);

  constructor(search: ByteSearch) {
    this.#search = search;
  }

  /** The bytes that may go on now; null if they have the credential. Keeps nothing back that cannot be part of it. */
  push(chunk: Buffer): Buffer | null {
    this.#state = this.#search.read(chunk, this.#state);
    if (this.#state < 0) return null;
    const kept = this.#search.pending(this.#state);
    const all = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    // Copied: the chunk's memory may be used again.
    this.#held = Buffer.from(all.subarray(all.length - kept));
    return all.subarray(0, all.length - kept);
  }

  /** The rest, at the end of the answer. */
  end(): Buffer {
    return this.#held;
  }
}

/** Makes guards, and keeps what several answers need. */
export class EchoGuards {
  readonly #kept = new Map<string, ByteSearch>();

  searchFor({ identity, value }: SecretValue): ByteSearch {
    const known = this.#kept.get(identity);
    if (known !== undefined) {
      this.#kept.delete(identity);
      this.#kept.set(identity, known);
      return known;
    }
    const search = new ByteSearch(encodedForms(value));
    this.#kept.set(identity, search);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MOST_KEPT && oldest !== undefined) this.#kept.delete(oldest);
    return search;
  }
}
