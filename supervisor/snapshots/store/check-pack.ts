import { objectInFrame, unpackFrame } from '../../../protocol/snapshots/frames.ts';
import { damaged } from '../../../protocol/snapshots/objects.ts';
import { type PackFile, type PackIndex, readStored } from '../../../protocol/snapshots/pack-index.ts';
import { type Reference, referencesOf } from './references.ts';

/**
 * Reads all of a pack and checks every frame and every object in it. Whoever made it need not be believed: objects must not share
 * bytes, so that what is hashed is never more than what was sent. Tells what the objects name. Throws `snapshot_damaged`.
 */
export async function checkPack(
  file: PackFile,
  index: PackIndex,
  onReference: (reference: Reference) => void,
): Promise<void> {
  for (const [at, objects] of index.byFrame().entries()) {
    const frame = index.frame(at);
    const raw = unpackFrame(frame.encoding, frame.rawLength, await readStored(file, frame));
    let end = 0;
    for (const object of objects) {
      if (object.offset < end) throw damaged('objects share bytes of their frame');
      end = object.offset + object.length;
      const body = objectInFrame(raw, object);
      for (const reference of referencesOf(object.kind, body)) onReference(reference);
    }
  }
}
