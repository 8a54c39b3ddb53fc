/**
 * What a connection to a sidecar carries once it has become a tunnel: pieces of a byte stream, each behind its length (u32, big
 * endian), in both directions. A length of 0 ends a direction, which an end of the connection never does: whoever loses the
 * connection knows that bytes are missing.
 */
export const TUNNEL_HEADER_BYTES = 4;
/** More in one piece is a fault of the other side. */
export const MAX_CHUNK_BYTES = 4 * 2 ** 20;

export function tunnelHeader(length: number): Buffer {
  const header = Buffer.allocUnsafe(TUNNEL_HEADER_BYTES);
  header.writeUInt32BE(length);
  return header;
}

export const TUNNEL_END = tunnelHeader(0);

export interface TunnelReader {
  /** Bytes of the other side as they came, in any division; they belong to the chunk that was pushed. */
  readonly onBytes: (bytes: Buffer) => void;
  readonly onEnd: () => void;
}

/** Chunks of a connection → the stream inside. Keeps no bytes but those of an unfinished header. */
export class TunnelDecoder {
  readonly #reader: TunnelReader;
  #header = 0;
  #headerBytes = 0;
  /** Of the piece at hand. */
  #left = 0;
  #ended = false;

  constructor(reader: TunnelReader) {
    this.#reader = reader;
  }

  /** False for what is no tunnel's: nothing can be read after it. */
  push(chunk: Buffer): boolean {
    let at = 0;
    while (at < chunk.length) {
      if (this.#ended) return false;
      if (this.#left > 0) {
        const taken = Math.min(this.#left, chunk.length - at);
        this.#left -= taken;
        this.#reader.onBytes(chunk.subarray(at, at + taken));
        at += taken;
        continue;
      }
      this.#header = this.#header * 256 + (chunk[at] ?? 0);
      this.#headerBytes += 1;
      at += 1;
      if (this.#headerBytes < TUNNEL_HEADER_BYTES) continue;
      const length = this.#header;
      this.#header = 0;
      this.#headerBytes = 0;
      if (length > MAX_CHUNK_BYTES) return false;
      if (length === 0) {
        this.#ended = true;
        this.#reader.onEnd();
      } else this.#left = length;
    }
    return true;
  }
}
