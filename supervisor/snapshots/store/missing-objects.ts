import { HoldfastError } from '../../../protocol/errors.ts';
import { type Hash, SNAPSHOT_LIMITS } from '../../../snapshot-format/objects.ts';

const { hashBytes } = SNAPSHOT_LIMITS;
/** Limits the objects that may be referenced before they arrive, and so the memory of a scan. */
const MAX_OBJECTS = 2 ** 20;
/** A hash, and its possible kinds as bits. */
const RECORD_BYTES = hashBytes + 1;

/** Objects that were referenced and have not arrived yet, with their possible kinds. */
export class MissingObjects {
  /** By hash (latin1): a bit for each possible kind. */
  readonly #kinds = new Map<string, number>();

  static decode(bytes: Buffer): MissingObjects {
    const missing = new MissingObjects();
    for (let at = 0; at < bytes.length; at += RECORD_BYTES) {
      missing.#kinds.set(bytes.toString('latin1', at, at + hashBytes), bytes[at + hashBytes] ?? 0);
    }
    return missing;
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

  /** Errors: `invalid_params` for references that no scan would send. */
  add(hash: Hash, kinds: number): void {
    const name = hash.toString('latin1');
    const both = (this.#kinds.get(name) ?? kinds) & kinds;
    if (both === 0) throw protocolViolation('trees that reference one object as two kinds');
    this.#kinds.set(name, both);
    if (this.#kinds.size > MAX_OBJECTS) throw protocolViolation('too many trees before their contents');
  }

  clear(): void {
    this.#kinds.clear();
  }

  *[Symbol.iterator](): Generator<{ readonly hash: Hash; readonly kinds: number }, void, undefined> {
    for (const [name, kinds] of this.#kinds) yield { hash: Buffer.from(name, 'latin1'), kinds };
  }
}

/** The error for a sidecar that sends what no scan would. */
export function protocolViolation(what: string): HoldfastError {
  return new HoldfastError('invalid_params', 'The store rejects what the sidecar sent', {
    why: `it sent ${what}`,
  });
}
