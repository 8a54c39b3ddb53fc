import { FrameBuilder } from '../../snapshot-format/frames.ts';
import {
  type Hash,
  hashOf,
  OBJECT_KINDS,
  type ObjectKind,
  type ObjectReader,
  SNAPSHOT_LIMITS,
} from '../../snapshot-format/objects.ts';
import type { FileEntry } from '../../snapshot-format/entries.ts';
import { buildContentRef, type Piece } from '../../snapshot-format/content-ref.ts';
import { PackWriter } from '../../snapshot-format/pack-writer.ts';
import type { IncomingPacks } from '../snapshots/store/incoming-packs.ts';
import type { LineageStore } from '../snapshots/store/lineage-store.ts';

/** Objects of a tree that is being made: those that the store lacks are kept in memory until `publish`. */
export class NewObjects implements ObjectReader {
  readonly #store: LineageStore;
  readonly #bodies = new Map<string, { readonly kind: ObjectKind; readonly body: Buffer }>();

  constructor(store: LineageStore) {
    this.#store = store;
  }

  /** Keeps an object. The body must not change afterwards. */
  readonly add = (kind: ObjectKind, body: Buffer): Hash => {
    const hash = hashOf(kind, body);
    if (!this.#store.hasTrustedCopy(hash)) this.#bodies.set(hash.toString('hex'), { kind, body });
    return hash;
  };

  read(hash: Hash, kind: ObjectKind): Promise<Buffer> {
    const own = this.#bodies.get(hash.toString('hex'));
    return own?.kind === kind ? Promise.resolve(own.body) : this.#store.read(hash, kind);
  }

  /** A file with this content, and the attributes of `model`. */
  file(content: Buffer, model: FileEntry): FileEntry {
    const pieces: Piece[] = [];
    for (let at = 0; at < content.length; at += SNAPSHOT_LIMITS.pieceBytes) {
      const body = content.subarray(at, at + SNAPSHOT_LIMITS.pieceBytes);
      pieces.push({ index: pieces.length, hash: this.add(OBJECT_KINDS.blob, body) });
    }
    const ref = buildContentRef(pieces, this.add);
    return { ...model, size: content.length, sparse: false, linkGroup: null, content: ref };
  }

  /** Sends the objects through the checks that packs of a sidecar pass, and publishes them with the tree `root`. */
  async publish(incoming: IncomingPacks, root: Hash): Promise<void> {
    await incoming.beginScan();
    let pack = 0;
    let writer = new PackWriter();
    let builder = new FrameBuilder();
    let offset = 0;
    const append = async (parts: readonly Buffer[]): Promise<void> => {
      for (const part of parts) {
        await incoming.put(pack, offset, part);
        offset += part.length;
      }
    };
    const endPack = async (): Promise<void> => {
      if (writer.objects === 0) return;
      const { objects } = writer;
      await append([writer.end()]);
      await incoming.seal(pack, offset, objects);
      pack += 1;
      offset = 0;
      writer = new PackWriter();
    };
    for (const [hex, { kind, body }] of this.#bodies) {
      const hash = Buffer.from(hex, 'hex');
      if (builder.add(hash, kind, body)) continue;
      await append(writer.append(builder.finish()));
      if (writer.isFull) await endPack();
      builder = new FrameBuilder();
      builder.add(hash, kind, body);
    }
    if (!builder.isEmpty) await append(writer.append(builder.finish()));
    await endPack();
    await incoming.publish(root.toString('hex'));
  }
}
