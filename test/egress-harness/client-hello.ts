import { duplexPair } from 'node:stream';
import { connect } from 'node:tls';

/** A made-up ClientHello, as far as tests vary it. */
export interface HelloOptions {
  /** The names in its server-name extension; none: no such extension. */
  readonly names?: readonly string[];
  /** More extensions: type and content. */
  readonly extensions?: readonly (readonly [type: number, data: Buffer])[];
  /** Bytes after the extensions. */
  readonly trailing?: Buffer;
}

/** The type of the extension for Encrypted ClientHello, and what Chromium sends there when it has nothing to say. */
export const ECH: readonly [number, Buffer] = [0xfe0d, Buffer.alloc(186, 7)];

/** A ClientHello as one handshake message, without records. */
export function helloMessage({
  names = [],
  extensions = [],
  trailing = Buffer.alloc(0),
}: HelloOptions): Buffer {
  const list = names.map((name) => Buffer.concat([Buffer.from([0]), vector(2, Buffer.from(name, 'latin1'))]));
  const serverName: readonly [number, Buffer][] =
    names.length === 0 ? [] : [[0, vector(2, Buffer.concat(list))]];
  const all = [...serverName, ...extensions].map(([type, data]) =>
    Buffer.concat([Buffer.from([type >> 8, type & 255]), vector(2, data)]),
  );
  const body = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32, 9),
    vector(1, Buffer.alloc(32, 8)),
    vector(2, Buffer.from([0x13, 0x01, 0x13, 0x02])),
    vector(1, Buffer.from([0])),
    vector(2, Buffer.concat(all)),
    trailing,
  ]);
  return Buffer.concat([Buffer.from([1]), vector(3, body)]);
}

/** The message cut into records of these sizes; the last one has the rest. */
export function inRecords(message: Buffer, sizes: readonly number[] = []): Buffer {
  const records: Buffer[] = [];
  let at = 0;
  for (const size of [...sizes, message.length]) {
    const piece = message.subarray(at, at + size);
    at += piece.length;
    if (piece.length > 0) records.push(Buffer.concat([Buffer.from([22, 3, 1]), vector(2, piece)]));
  }
  return Buffer.concat(records);
}

/** The first words of Node's own TLS client. */
export async function nodeHello(servername: string | undefined): Promise<Buffer> {
  const [ours, theirs] = duplexPair();
  const client = connect({ socket: ours, ...(servername === undefined ? {} : { servername }) });
  client.on('error', () => undefined);
  const hello = await new Promise<Buffer>((resolve) => theirs.once('data', resolve));
  client.destroy();
  theirs.destroy();
  return hello;
}

function vector(lengthBytes: number, data: Buffer): Buffer {
  const length = Buffer.alloc(lengthBytes);
  length.writeUIntBE(data.length, 0, lengthBytes);
  return Buffer.concat([length, data]);
}
