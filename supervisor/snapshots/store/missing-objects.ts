import { HoldfastError } from '../../../protocol/errors.ts';
import { type Hash, SNAPSHOT_LIMITS } from '../../../snapshot-format/objects.ts';

const { hashBytes } = SNAPSHOT_LIMITS;
/** Objects that may be named before they come: bounds the memory that a scan costs. */
const MOST = 2 ** 20;
/** Hash, and kinds as bits. */
const RECORD_BYTES = hashBytes + 1;

/** Objects that were named and have not come yet, and what they may be. */
export class MissingObjects {
  /** By hash (latin1): a bit for each kind. */
  readonly #kinds = new Map<string, number>();

  static decode(bytes: Buffer): MissingObjects {
    const lacking = new MissingObjects();
    for (let at = 0; at < bytes.length; at += RECORD_BYTES) {
      lacking.#kinds.set(bytes.toString('latin1', at, at + hashBytes), bytes[at + hashBytes] ?? 0);
    }
    return lacking;
  }

  encode(): Buffer {
    const bytes = Buffer.allocUnsafeSlow(this.#kinds.size * RECORD_BYTES);
    let at = 0;
    for (const [name, kinds] of this.#kinds) {
      bytes.write(name, at, 'latin1');
      bytes[at + hashBytes] = kinds;
      at += RECORD_BYTES;
    }
    return bytes;
  }

  get size(): number {
    return this.#kinds.size;
  }

  /** Errors: `invalid_params` for what no scan would name. */
  add(hash: Hash, kinds: number): void {
    const name = hash.toString('latin1');
    const both = (this.#kinds.get(name) ?? kinds) & kinds;
    if (both === 0) throw protocolViolation('trees that name one object as two kinds');
    this.#kinds.set(name, both);
    if (this.#kinds.size > MOST) throw protocolViolation('too many trees before what is in them');
  }

  clear(): void {
    this.#kinds.clear();
  }

  *[Symbol.iterator](): Generator<{ readonly hash: Hash; readonly kinds: number }, void, undefined> {
    for (const [name, kinds] of this.#kinds) yield { hash: Buffer.from(name, 'latin1'), kinds };
  }
}

/** What a sidecar is told that sends what no scan would. */
export function protocolViolation(what: string): HoldfastError {
  return new HoldfastError('invalid_params', 'The store does not take what the sidecar sends', {
    why: `it sent ${what}`,
  });
}
