import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { isIPv4 } from 'node:net';

const HEADER_BYTES = 12;
const TYPE_A = 1;
const TYPE_AAAA = 28;

/** Addresses of a name at the nth query (from 1) of this family. */
export type Answer = (nth: number, family: 4 | 6) => readonly string[];

/**
 * A name server for `HOLDFAST_DNS`. Returns what the test wants, also different answers each time, and counts its
 * queries. Unknown names do not exist, unless it knows `*`.
 */
export class NameServer {
  readonly queries: string[] = [];
  readonly #socket: Socket;
  readonly #names = new Map<string, Answer>();
  readonly #counts = new Map<string, number>();

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('message', (question, { port, address }) => {
      const answer = this.#answer(question);
      if (answer !== null) socket.send(answer, port, address);
    });
  }

  static async start(names: Readonly<Record<string, readonly string[] | Answer>> = {}): Promise<NameServer> {
    const socket = createSocket('udp4');
    socket.bind(0, '127.0.0.1');
    await once(socket, 'listening');
    const server = new NameServer(socket);
    for (const [name, answer] of Object.entries(names)) server.set(name, answer);
    return server;
  }

  /** Its address in the form of HOLDFAST_DNS. */
  get address(): string {
    return `127.0.0.1:${this.#socket.address().port}`;
  }

  set(name: string, answer: readonly string[] | Answer): void {
    this.#names.set(name, typeof answer === 'function' ? answer : () => answer);
  }

  async dispose(): Promise<void> {
    this.#socket.close();
    await once(this.#socket, 'close');
  }

  #answer(question: Buffer): Buffer | null {
    if (question.length < HEADER_BYTES + 5) return null;
    const labels: string[] = [];
    let at = HEADER_BYTES;
    for (let length = question[at] ?? 0; length > 0; length = question[at] ?? 0) {
      labels.push(question.toString('latin1', at + 1, at + 1 + length));
      at += 1 + length;
    }
    const name = labels.join('.').toLowerCase();
    const type = question.readUInt16BE(at + 1);
    const asked = question.subarray(HEADER_BYTES, at + 5);
    const family = type === TYPE_A ? 4 : type === TYPE_AAAA ? 6 : null;
    const known = this.#names.get(name) ?? this.#names.get('*');
    const addresses = family === null || known === undefined ? [] : this.#say(name, family, known);
    const records = addresses.map((address) => record(type, address));
    const header = Buffer.alloc(HEADER_BYTES);
    question.copy(header, 0, 0, 2);
    // Flags of a response with recursion; NXDOMAIN for unknown names.
    header.writeUInt16BE(0x8180 + (known === undefined ? 3 : 0), 2);
    header.writeUInt16BE(1, 4);
    header.writeUInt16BE(records.length, 6);
    return Buffer.concat([header, asked, ...records]);
  }

  #say(name: string, family: 4 | 6, answer: Answer): readonly string[] {
    const key = `${name} ${family}`;
    const nth = (this.#counts.get(key) ?? 0) + 1;
    this.#counts.set(key, nth);
    this.queries.push(key);
    return answer(nth, family).filter((address) => isIPv4(address) === (family === 4));
  }
}

function record(type: number, address: string): Buffer {
  const bytes = isIPv4(address) ? Buffer.from(address.split('.').map(Number)) : ipv6Bytes(address);
  const head = Buffer.alloc(12);
  // A pointer to the name in the question.
  head.writeUInt16BE(0xc00c, 0);
  head.writeUInt16BE(type, 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(bytes.length, 10);
  return Buffer.concat([head, bytes]);
}

function ipv6Bytes(address: string): Buffer {
  const [before = '', after] = address.split('::');
  const groups = (text: string): string[] => (text === '' ? [] : text.split(':'));
  const head = groups(before);
  const tail = after === undefined ? [] : groups(after);
  const zeros = Array.from({ length: 8 - head.length - tail.length }, () => '0');
  return Buffer.from([...head, ...zeros, ...tail].map((group) => group.padStart(4, '0')).join(''), 'hex');
}
