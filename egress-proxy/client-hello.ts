import { canonicalizeHost } from '../protocol/host-name.ts';

/** Longest ClientHello, bytes. Those of browsers have about 2 KB, with post-quantum keys and all. */
export const MAX_HELLO_BYTES = 16 * 1024;
/** A record has at most this many bytes (RFC 8446 §5.1), and a ClientHello at most this many records. */
const MAX_RECORD_BYTES = 16 * 1024;
const MAX_RECORDS = 256;
const RECORD_HEADER_BYTES = 5;
const HANDSHAKE_HEADER_BYTES = 4;

const HANDSHAKE_RECORD = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;
const HOST_NAME = 0;
/** Encrypted ClientHello (0xfe0d), its drafts, and its predecessor, encrypted SNI. */
const ENCRYPTED_NAMES: ReadonlySet<number> = new Set([
  0xfe08, 0xfe09, 0xfe0a, 0xfe0b, 0xfe0c, 0xfe0d, 0xffce,
]);

/** What a TLS client asks for, in the clear. */
export interface ClientHello {
  /** Canonical name, or an address if the client put one there; null without the extension. */
  readonly serverName: string | null;
  /** It has the extension of Encrypted ClientHello, real or as padding (GREASE): nobody can tell the two apart. */
  readonly encrypted: boolean;
}

/** `more`: nothing is wrong so far. */
export type HelloProgress =
  | { readonly state: 'more' }
  | { readonly state: 'hello'; readonly hello: ClientHello }
  | { readonly state: 'bad'; readonly why: string };

/**
 * Reads the ClientHello at the start of a TLS connection, reassembled over records and reads. Strict: whatever two
 * programs could read in two ways is bad. Costs time in proportion to the bytes, however they are cut.
 */
export class ClientHelloReader {
  /** The record header that has not arrived as a whole. */
  readonly #header = Buffer.alloc(RECORD_HEADER_BYTES);
  #headerBytes = 0;
  /** Bytes that the current record still has. */
  #left = 0;
  #records = 0;
  readonly #message = Buffer.alloc(HANDSHAKE_HEADER_BYTES + MAX_HELLO_BYTES);
  #messageBytes = 0;
  #result: HelloProgress = { state: 'more' };

  /** Takes the next bytes of the client. Those after the ClientHello are ignored unless its last record has them. */
  push(bytes: Buffer): HelloProgress {
    let at = 0;
    while (this.#result.state === 'more' && at < bytes.length) {
      if (this.#left > 0) {
        const piece = bytes.subarray(at, at + this.#left);
        at += piece.length;
        this.#left -= piece.length;
        this.#result = this.#take(piece);
      } else {
        this.#header[this.#headerBytes] = bytes[at] ?? 0;
        this.#headerBytes += 1;
        at += 1;
        this.#result = this.#beginRecord();
      }
    }
    return this.#result;
  }

  /** Checks the bytes of the record header that are there, each as soon as it is. */
  #beginRecord(): HelloProgress {
    const have = this.#headerBytes;
    if (this.#header[0] !== HANDSHAKE_RECORD || (have > 1 && this.#header[1] !== 3))
      return bad('it is not a TLS handshake');
    if (have < RECORD_HEADER_BYTES) return { state: 'more' };
    this.#headerBytes = 0;
    this.#records += 1;
    this.#left = this.#header.readUInt16BE(3);
    if (this.#left === 0 || this.#left > MAX_RECORD_BYTES) return bad('a record has an invalid length');
    if (this.#records > MAX_RECORDS) return bad('it is cut into too many records');
    return { state: 'more' };
  }

  #take(piece: Buffer): HelloProgress {
    if (this.#messageBytes + piece.length > this.#message.length) return bad('it is too long');
    this.#messageBytes += piece.copy(this.#message, this.#messageBytes);
    if (this.#message[0] !== CLIENT_HELLO) return bad('it does not begin with a ClientHello');
    if (this.#messageBytes < HANDSHAKE_HEADER_BYTES) return { state: 'more' };
    const length = this.#message.readUIntBE(1, 3);
    if (length > MAX_HELLO_BYTES) return bad('it is too long');
    const end = HANDSHAKE_HEADER_BYTES + length;
    if (this.#messageBytes < end) return { state: 'more' };
    // Another message in the same record: no client sends one before the server has answered.
    if (this.#messageBytes > end || this.#left > 0) return bad('something follows it in its record');
    const hello = parseClientHello(this.#message.subarray(HANDSHAKE_HEADER_BYTES, end));
    return typeof hello === 'string' ? bad(hello) : { state: 'hello', hello };
  }
}

/** Parses the body of a ClientHello (RFC 8446 §4.1.2), or says what is wrong with it. */
export function parseClientHello(body: Buffer): ClientHello | string {
  try {
    return parse(new Fields(body));
  } catch (error) {
    if (error instanceof Malformed) return error.message;
    throw error;
  }
}

function parse(fields: Fields): ClientHello {
  if (fields.number(1) !== 3) throw new Malformed('it has an unknown version');
  // Minor version and random.
  fields.take(1 + 32);
  if (fields.vector(1).length > 32) throw new Malformed('its session id is too long');
  const suites = fields.vector(2);
  if (suites.length < 2 || suites.length % 2 !== 0) throw new Malformed('its cipher suites are malformed');
  if (fields.vector(1).length === 0) throw new Malformed('it has no compression method');
  // Clients of the last century have no extensions at all.
  const extensions = new Fields(fields.isEmpty ? Buffer.alloc(0) : fields.vector(2));
  fields.finish();
  const seen = new Set<number>();
  let serverName: string | null = null;
  while (!extensions.isEmpty) {
    const type = extensions.number(2);
    const data = extensions.vector(2);
    if (seen.has(type)) throw new Malformed('it has an extension twice');
    seen.add(type);
    if (type === SERVER_NAME) serverName = parseServerName(new Fields(data));
  }
  return { serverName, encrypted: [...ENCRYPTED_NAMES].some((type) => seen.has(type)) };
}

/** RFC 6066 §3: a list, in which nobody has ever put anything but one host name. */
function parseServerName(fields: Fields): string {
  const list = new Fields(fields.vector(2));
  fields.finish();
  if (list.number(1) !== HOST_NAME) throw new Malformed('its server name is of an unknown type');
  const name = list.vector(2).toString('latin1');
  list.finish();
  const canonical = canonicalizeHost(name);
  if (!/^[\x21-\x7e]+$/.test(name) || 'refused' in canonical)
    throw new Malformed('its server name is not a host name');
  return canonical.host;
}

class Malformed extends Error {}

/** Big-endian numbers and vectors with their length before them. Throws `Malformed` beyond the end. */
class Fields {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isEmpty(): boolean {
    return this.#at === this.#bytes.length;
  }

  take(length: number): Buffer {
    if (this.#at + length > this.#bytes.length) throw new Malformed('its lengths do not agree');
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  number(bytes: 1 | 2): number {
    return this.take(bytes).readUIntBE(0, bytes);
  }

  vector(lengthBytes: 1 | 2): Buffer {
    return this.take(this.number(lengthBytes));
  }

  finish(): void {
    if (!this.isEmpty) throw new Malformed('its lengths do not agree');
  }
}

function bad(why: string): HelloProgress {
  return { state: 'bad', why };
}
