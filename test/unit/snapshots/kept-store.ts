import { HoldfastError } from '../../../protocol/errors.ts';
import { encodeRecords, objectInFrame, packRaw } from '../../../snapshot-format/frames.ts';
import {
  damaged,
  type Hash,
  type ObjectKind,
  type ObjectReader,
  SNAPSHOT_LIMITS,
} from '../../../snapshot-format/objects.ts';
import {
  PackIndex,
  type PackObject,
  readFrame,
  readObject,
  readStored,
} from '../../../snapshot-format/pack-index.ts';
import type { PackFile } from '../../../snapshot-format/pack-index.ts';
import type { STORE_CALLS } from '../../../snapshot-format/wire.ts';
import { type Handlers, withBytes, WithBytes } from '../../../protocol/wire/shapes.ts';
import { FRAME_LIMITS } from '../../../protocol/wire/limits.ts';
import type { Store } from '../../../sidecar/snapshots/store.ts';
import { fileOf } from './stored-objects.ts';

interface Pack {
  readonly file: PackFile;
  readonly index: PackIndex;
  readonly groups: PackObject[][];
  readonly bytes: Buffer;
}

/** What the supervisor's store does for a sidecar, in memory: for tests of the sidecar alone. */
export class KeptStore implements ObjectReader {
  readonly objects = new Map<string, { pack: Pack; object: PackObject }>();
  /** Calls by name, for tests that count them. */
  readonly calls = new Map<string, number>();
  /** Bytes of the packs that are complete. */
  bytes = 0;
  /** Called before each call is answered; what it throws is the answer. */
  before: (call: string) => Promise<void> = () => Promise.resolve();
  /** An object (hexadecimal) that is sent with a bit turned over. */
  damage: string | null = null;
  /** What a sidecar left for the next one; null: nothing. */
  cache: Buffer | null = null;
  #incoming = new Map<number, Buffer[]>();
  #cache: Buffer[] = [];

  readonly handlers: Handlers<typeof STORE_CALLS> = {
    'store/have': async ({ hashes }, { bytes }) => {
      await this.#count('have');
      const bits = Buffer.alloc(Math.ceil(hashes / 8));
      for (const [index, hash] of this.#cut(hashes, bytes).entries()) {
        if (this.objects.has(hash.toString('hex')))
          bits[index >> 3] = (bits[index >> 3] ?? 0) | (1 << (index & 7));
      }
      return withBytes({}, bits);
    },
    'store/put': async ({ pack, offset }, { bytes }) => {
      await this.#count('put');
      // Packs are numbered anew in each scan; what one that failed has left is let go.
      const parts = (offset === 0 ? undefined : this.#incoming.get(pack)) ?? [];
      if (length(parts) !== offset)
        throw new HoldfastError('invalid_params', `pack ${pack} has a gap at ${offset}`);
      parts.push(Buffer.from(bytes));
      this.#incoming.set(pack, parts);
      return {};
    },
    'store/sealed': async ({ pack, bytes, objects }) => {
      await this.#count('sealed');
      const whole = Buffer.concat(this.#incoming.get(pack) ?? []);
      this.#incoming.delete(pack);
      if (whole.length !== bytes)
        throw new HoldfastError('invalid_params', 'a pack is not as long as it says');
      const index = await PackIndex.read(fileOf(whole));
      if (index.objects !== objects)
        throw new HoldfastError('invalid_params', 'a pack has not as many objects');
      await this.adopt(whole);
      return {};
    },
    'store/read': async ({ hashes }, { bytes }) => {
      await this.#count('read');
      const frames: { objects: number; stored: number; raw: number; encoding: number }[] = [];
      const parts: Buffer[] = [];
      const sent = new Set<string>();
      let room: number = FRAME_LIMITS.payloadBytes;
      for (const [at, hash] of this.#cut(hashes, bytes).entries()) {
        const hex = hash.toString('hex');
        const found = this.objects.get(hex);
        if (found === undefined) {
          if (at === 0) throw damaged('there is no such object', { object: hex });
          break;
        }
        if (sent.has(hex)) continue;
        const { pack, object } = found;
        const frame = pack.index.frame(object.frame);
        const group = pack.groups[object.frame] ?? [];
        const table = encodeRecords(group);
        const stored = await readStored(pack.file, frame);
        const bad = group.find((one) => one.hash.toString('hex') === this.damage);
        if (bad !== undefined) {
          const raw = Buffer.from(await readFrame(pack.file, frame));
          raw[bad.offset] = (raw[bad.offset] ?? 0) ^ 1;
          for (const one of group) sent.add(one.hash.toString('hex'));
          const { encoding, stored: packed } = packRaw(raw);
          frames.push({ objects: group.length, stored: packed.length, raw: raw.length, encoding });
          parts.push(table, packed);
          continue;
        }
        room -= table.length + stored.length;
        if (room < 0 && at > 0) break;
        for (const one of group) sent.add(one.hash.toString('hex'));
        frames.push({
          objects: group.length,
          stored: stored.length,
          raw: frame.rawLength,
          encoding: frame.encoding,
        });
        parts.push(table, stored);
      }
      return withBytes({ frames }, Buffer.concat(parts));
    },
    'cache/read': async ({ offset }) => {
      await this.#count('cache/read');
      return withBytes(
        {},
        this.cache?.subarray(offset, offset + FRAME_LIMITS.payloadBytes) ?? Buffer.alloc(0),
      );
    },
    'cache/put': async ({ offset }, { bytes }) => {
      await this.#count('cache/put');
      if (offset === 0) this.#cache = [];
      if (length(this.#cache) !== offset) throw new HoldfastError('invalid_params', 'the cache has a gap');
      this.#cache.push(Buffer.from(bytes));
      return {};
    },
    'cache/sealed': async ({ bytes }) => {
      await this.#count('cache/sealed');
      if (length(this.#cache) !== bytes) throw new HoldfastError('invalid_params', 'the cache is cut off');
      this.cache = Buffer.concat(this.#cache);
      return {};
    },
  };

  /** A pack that was sealed elsewhere. */
  async adopt(bytes: Buffer): Promise<void> {
    const file = fileOf(bytes);
    const index = await PackIndex.read(file);
    const kept: Pack = { file, index, groups: index.byFrame(), bytes };
    for (const [frame, group] of kept.groups.entries()) {
      const raw = await readFrame(file, index.frame(frame));
      for (const object of group) {
        objectInFrame(raw, object);
        this.objects.set(object.hash.toString('hex'), { pack: kept, object });
      }
    }
    this.bytes += bytes.length;
  }

  /** Every pack. */
  packs(): Buffer[] {
    return [...new Set([...this.objects.values()].map(({ pack }) => pack.bytes))];
  }

  read(hash: Hash, kind: ObjectKind): Promise<Buffer> {
    const hex = hash.toString('hex');
    const found = this.objects.get(hex);
    if (found === undefined) return Promise.reject(damaged('there is no such object', { object: hex }));
    return readObject(found.pack.file, found.pack.index, found.object, kind);
  }

  /** What all frames hold when they are unpacked. */
  async contents(): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (const pack of new Set([...this.objects.values()].map((one) => one.pack))) {
      for (let at = 0; at < pack.index.frames; at += 1)
        parts.push(await readFrame(pack.file, pack.index.frame(at)));
    }
    return Buffer.concat(parts);
  }

  /** As the sidecar's thread sees it. */
  store(): Store {
    type Context = Parameters<(typeof this.handlers)['store/put']>[1];
    const context = (bytes: Buffer): Context => ({
      id: 1,
      bytes,
      signal: new AbortController().signal,
      progress: () => undefined,
      releaseBytes: () => undefined,
      peer: undefined,
    });
    const bytesOf = (answer: unknown): Buffer => {
      if (!(answer instanceof WithBytes)) throw new Error('bytes were expected');
      return Buffer.from(answer.bytes);
    };
    const { handlers } = this;
    return {
      have: async (hashes) => {
        const answer = await handlers['store/have'](
          { hashes: hashes.length },
          context(Buffer.concat(hashes)),
        );
        const bits = bytesOf(answer);
        return (index) => (((bits[index >> 3] ?? 0) >> (index & 7)) & 1) === 1;
      },
      put: async (pack, offset, bytes) => {
        await handlers['store/put']({ pack, offset }, context(Buffer.from(bytes)));
      },
      sealed: async (pack, bytes, objects) => {
        await handlers['store/sealed']({ pack, bytes, objects }, context(Buffer.alloc(0)));
      },
      read: async (hashes) => {
        const answer = await handlers['store/read'](
          { hashes: hashes.length },
          context(Buffer.concat(hashes)),
        );
        if (!(answer instanceof WithBytes)) throw new Error('bytes were expected');
        return { frames: answer.result.frames, bytes: Buffer.from(answer.bytes) };
      },
      readCache: async (offset) =>
        bytesOf(await handlers['cache/read']({ offset }, context(Buffer.alloc(0)))),
      putCache: async (offset, bytes) => {
        await handlers['cache/put']({ offset }, context(bytes));
      },
      sealCache: async (bytes) => {
        await handlers['cache/sealed']({ bytes }, context(Buffer.alloc(0)));
      },
    };
  }

  async #count(call: string): Promise<void> {
    this.calls.set(call, (this.calls.get(call) ?? 0) + 1);
    await this.before(call);
  }

  #cut(count: number, bytes: Buffer): Hash[] {
    const { hashBytes } = SNAPSHOT_LIMITS;
    if (bytes.length !== count * hashBytes)
      throw new HoldfastError('invalid_params', 'not as many hashes as announced');
    return Array.from({ length: count }, (_, at) => bytes.subarray(at * hashBytes, (at + 1) * hashBytes));
  }
}

function length(parts: readonly Buffer[]): number {
  return parts.reduce((sum, part) => sum + part.length, 0);
}
