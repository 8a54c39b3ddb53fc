import { FrameBuilder } from '../../protocol/snapshots/frames.ts';
import { type Hash, hashOf, type ObjectKind } from '../../protocol/snapshots/objects.ts';
import { PackWriter } from '../../protocol/snapshots/pack-writer.ts';
import { SNAPSHOT_WIRE_LIMITS } from '../../protocol/snapshots/wire.ts';
import { keyOf } from './folder.ts';
import type { Store } from './store.ts';

/** What is collected before the store is asked for all of it together. */
const BATCH_BYTES = 4 * 2 ** 20;

interface Waiting {
  readonly hash: Hash;
  readonly kind: ObjectKind;
  readonly body: Buffer;
}

/** Where the objects of a scan go. */
export interface ObjectOutlet {
  /** Takes an object; the body must not change afterwards. */
  add(kind: ObjectKind, body: Buffer): Hash;
  /** True when `flush` should be awaited before more is added. */
  readonly isFull: boolean;
  flush(): Promise<void>;
}

/** For a look that stores nothing. Hashes go into `made` (latin1). */
export class Nowhere implements ObjectOutlet {
  readonly isFull = false;
  readonly #made: Set<string>;

  constructor(made: Set<string>) {
    this.#made = made;
  }

  add(kind: ObjectKind, body: Buffer): Hash {
    const hash = hashOf(kind, body);
    this.#made.add(keyOf(hash));
    return hash;
  }

  flush(): Promise<void> {
    return Promise.resolve();
  }
}

/** Sends the store what it does not have, as packs. Holds some batches in memory. */
export class Outbox implements ObjectOutlet {
  readonly #store: Store;
  readonly #asks: boolean;
  readonly #made: Set<string>;
  /** Hashes (latin1) that the store has or that are on their way. */
  readonly #known = new Set<string>();
  #waiting: Waiting[] = [];
  #waitingBytes = 0;
  readonly #frame = new FrameBuilder();
  #pack = new PackWriter();
  #number = 0;
  readonly #puts = new Set<Promise<void>>();
  #failure: { readonly error: unknown } | null = null;
  newObjects = 0;
  newBytes = 0;

  /** `asks`: the store may have some of the objects already. Hashes (latin1) go into `made`. */
  constructor(store: Store, asks: boolean, made: Set<string>) {
    this.#store = store;
    this.#asks = asks;
    this.#made = made;
  }

  get isFull(): boolean {
    return this.#waitingBytes >= BATCH_BYTES || this.#waiting.length >= SNAPSHOT_WIRE_LIMITS.have;
  }

  add(kind: ObjectKind, body: Buffer): Hash {
    const hash = hashOf(kind, body);
    const key = keyOf(hash);
    if (this.#known.has(key)) return hash;
    this.#known.add(key);
    this.#made.add(key);
    this.#waiting.push({ hash, kind, body });
    this.#waitingBytes += body.length;
    return hash;
  }

  /** Resolves when more may be added; what was added has then been taken up by the store or is on its way. */
  async flush(): Promise<void> {
    const batch = this.#waiting;
    this.#waiting = [];
    this.#waitingBytes = 0;
    for (let from = 0; from < batch.length; from += SNAPSHOT_WIRE_LIMITS.have) {
      const part = batch.slice(from, from + SNAPSHOT_WIRE_LIMITS.have);
      const has = this.#asks ? await this.#store.have(part.map(({ hash }) => hash)) : () => false;
      for (const [index, object] of part.entries()) {
        if (has(index)) continue;
        if (!this.#frame.add(object.hash, object.kind, object.body)) {
          await this.#send();
          this.#frame.add(object.hash, object.kind, object.body);
        }
        this.newObjects += 1;
      }
    }
  }

  /** Everything is in the store. */
  async end(): Promise<void> {
    await this.flush();
    if (!this.#frame.isEmpty) await this.#send();
    if (this.#pack.length > 0) await this.#seal();
  }

  async #send(): Promise<void> {
    if (this.#pack.isFull) await this.#seal();
    const offset = this.#pack.length;
    const parts = this.#pack.append(this.#frame.finish());
    await this.#put(offset, parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts));
  }

  async #seal(): Promise<void> {
    const offset = this.#pack.length;
    const index = this.#pack.end();
    for (let from = 0; from < index.length; from += BATCH_BYTES) {
      await this.#put(offset + from, index.subarray(from, from + BATCH_BYTES));
    }
    await Promise.all(this.#puts);
    this.#throwIfFailed();
    await this.#store.sealed(this.#number, this.#pack.length, this.#pack.objects);
    this.newBytes += this.#pack.length;
    this.#number += 1;
    this.#pack = new PackWriter();
  }

  /** Waits only while too many are on their way. */
  async #put(offset: number, bytes: Buffer): Promise<void> {
    while (this.#puts.size >= SNAPSHOT_WIRE_LIMITS.putsInFlight) await Promise.race(this.#puts);
    this.#throwIfFailed();
    const sent = this.#store.put(this.#number, offset, bytes).then(
      () => undefined,
      (error: unknown) => {
        this.#failure ??= { error };
      },
    );
    const counted = sent.finally(() => this.#puts.delete(counted));
    this.#puts.add(counted);
  }

  #throwIfFailed(): void {
    if (this.#failure !== null) throw this.#failure.error;
  }
}
