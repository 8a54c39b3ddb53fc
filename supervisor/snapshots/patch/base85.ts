const ALPHABET = Buffer.from(
  '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~',
);
/** Bytes that one line of a binary patch holds. */
export const LINE_BYTES = 52;
const LINE_CHARACTERS = 1 + (LINE_BYTES / 4) * 5 + 1;

/**
 * Lines of a `GIT binary patch`: a letter for the number of bytes, then five characters for every four bytes, padded at
 * the end.
 */
export function base85Lines(bytes: Uint8Array): Buffer {
  const lines = Math.ceil(bytes.length / LINE_BYTES);
  const out = Buffer.allocUnsafe(lines * LINE_CHARACTERS);
  let at = 0;
  for (let start = 0; start < bytes.length; start += LINE_BYTES) {
    const count = Math.min(LINE_BYTES, bytes.length - start);
    out[at] = count <= 26 ? 0x40 + count : 0x60 + count - 26;
    at += 1;
    for (let group = start; group < start + count; group += 4) {
      let value = 0;
      for (let byte = 0; byte < 4; byte += 1) {
        const index = group + byte;
        value = value * 256 + (index < start + count ? (bytes[index] ?? 0) : 0);
      }
      for (let digit = 4; digit >= 0; digit -= 1) {
        out[at + digit] = ALPHABET[value % 85] ?? 0;
        value = Math.floor(value / 85);
      }
      at += 5;
    }
    out[at] = 0x0a;
    at += 1;
  }
  return out.subarray(0, at);
}
