/**
 * A pack is `magic`, frames back to back, then its index: a table of frames (offset u64, stored length u32, raw length
 * u32, encoding u32, crc32 of the stored bytes u32), a table of objects sorted by hash (hash, frame u32, offset u32,
 * length u32, kind u32), and the footer (position of the index u64, frames u32, objects u32, sha256 of the tables and
 * these numbers, end magic). Little endian.
 */
export const PACK = {
  magic: Buffer.from('HFPACK1\n'),
  endMagic: Buffer.from('\nHFPEND1'),
  frameBytes: 24,
  objectBytes: 48,
  footerBytes: 56,
  /** A writer ends a pack at this size. */
  targetBytes: 64 * 2 ** 20,
  /** The largest size that a reader accepts. */
  maxBytes: 128 * 2 ** 20,
  maxFrames: 2 ** 17,
  maxObjects: 2 ** 18,
} as const;
