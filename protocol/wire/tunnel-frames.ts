/**
 * The framing of a connection to a sidecar that has become a tunnel: in both directions chunks of a byte stream, each
 * after its length (u32, big endian). A length of 0 ends a direction. The end of the connection without it means that
 * bytes are missing.
 */
export const TUNNEL_HEADER_BYTES = 4;
/** A longer chunk is a protocol error. */
export const MAX_CHUNK_BYTES = 4 * 2 ** 20;

export function tunnelHeader(length: number): Buffer {
  const header = Buffer.allocUnsafe(TUNNEL_HEADER_BYTES);
  header.writeUInt32BE(length);
  return header;
}

export const TUNNEL_END = tunnelHeader(0);

export interface TunnelReader {
  /** Bytes of the other side, in parts of any size. They are a view of the pushed chunk. */
  readonly onBytes: (bytes: Buffer) => void;
  readonly onEnd: () => void;
}

/** Decodes the byte stream from chunks of a connection. Buffers only an incomplete header. */
export class TunnelDecoder {
  readonly #reader: TunnelReader;
  #header = 0;
  #headerBytes = 0;
  /** Remaining bytes of the current chunk. */
  #left = 0;
  #ended = false;

  constructor(reader: TunnelReader) {
    this.#reader = reader;
  }

  /** False for a protocol error, after which nothing can be read. */
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
