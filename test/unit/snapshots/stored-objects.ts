import { FrameBuilder } from '../../../snapshot-format/frames.ts';
import {
  checkObject,
  damaged,
  type Hash,
  hashOf,
  type ObjectKind,
  type ObjectReader,
} from '../../../snapshot-format/objects.ts';
import type { PackFile } from '../../../snapshot-format/pack-index.ts';
import { PackWriter } from '../../../snapshot-format/pack-writer.ts';

/** Objects in memory, for what only needs somewhere to keep them. */
export class StoredObjects implements ObjectReader {
  readonly bodies = new Map<string, { kind: ObjectKind; body: Buffer }>();

  readonly add = (kind: ObjectKind, body: Buffer): Hash => {
    const hash = hashOf(kind, body);
    this.bodies.set(hash.toString('hex'), { kind, body });
    return hash;
  };

  read(hash: Hash, kind: ObjectKind): Promise<Buffer> {
    const found = this.bodies.get(hash.toString('hex'));
    if (found?.kind !== kind) return Promise.reject(damaged('there is no such object'));
    checkObject(hash, kind, found.body);
    return Promise.resolve(found.body);
  }

  /** All of them as one pack's bytes. */
  pack(): Buffer {
    const writer = new PackWriter();
    const builder = new FrameBuilder();
    const parts: Buffer[] = [];
    for (const [hex, { kind, body }] of this.bodies) {
      const hash = Buffer.from(hex, 'hex');
      if (builder.add(hash, kind, body)) continue;
      parts.push(...writer.append(builder.finish()));
      builder.add(hash, kind, body);
    }
    parts.push(...writer.append(builder.finish()), writer.end());
    return Buffer.concat(parts);
  }
}

export function fileOf(bytes: Buffer): PackFile {
  return {
    size: bytes.length,
    read: (offset, length) => {
      if (offset < 0 || length < 0 || offset + length > bytes.length) {
        return Promise.reject(new RangeError('read past the end'));
      }
      return Promise.resolve(Buffer.from(bytes.subarray(offset, offset + length)));
    },
  };
}
