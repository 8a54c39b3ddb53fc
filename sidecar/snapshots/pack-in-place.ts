import { ENCODINGS, type Frame, packRaw } from '../../snapshot-format/frames.ts';
import { letGo } from '../../snapshot-format/let-go.ts';

/** Compresses a frame where that makes it smaller; what is stored then lies where it began. */
export function packInPlace(raw: Buffer): Pick<Frame, 'encoding' | 'stored' | 'checksum'> {
  const { encoding, stored, checksum } = packRaw(raw);
  const { length } = stored;
  if (encoding !== ENCODINGS.raw) {
    raw.set(stored);
    letGo(stored);
  }
  return { encoding, stored: raw.subarray(0, length), checksum };
}
