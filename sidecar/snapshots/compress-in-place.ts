import { ENCODINGS, type Frame, compressFrame } from '../../snapshot-format/frames.ts';
import { releaseBuffer } from '../../snapshot-format/release-buffer.ts';

/** Compresses a frame if that makes it smaller. The result is written over the input. */
export function compressInPlace(raw: Buffer): Pick<Frame, 'encoding' | 'stored' | 'checksum'> {
  const { encoding, stored, checksum } = compressFrame(raw);
  const { length } = stored;
  if (encoding !== ENCODINGS.raw) {
    raw.set(stored);
    releaseBuffer(stored);
  }
  return { encoding, stored: raw.subarray(0, length), checksum };
}
