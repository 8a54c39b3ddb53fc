import { refusedBundle } from './bundle-format.ts';

const BLOCK_BYTES = 512;
const NAME_BYTES = 100;
/** What eleven octal digits can say. */
const MAX_SIZE = 8 ** 11 - 1;
const NAME = /^[a-z0-9][a-z0-9./-]*$/;
const ZERO_BLOCK = Buffer.alloc(BLOCK_BYTES);

/** The two blocks of zeros that end an archive. */
export const TAR_END = Buffer.alloc(2 * BLOCK_BYTES);

/** The header of a regular file: the only kind of member that bundles have, so that everything else can be refused. */
export function tarHeader(name: string, size: number): Buffer {
  if (!NAME.test(name) || name.includes('..') || name.length > NAME_BYTES)
    throw new RangeError('a name that no member has');
  if (!Number.isSafeInteger(size) || size < 0 || size > MAX_SIZE)
    throw new RangeError('a size that no member has');
  const header = Buffer.alloc(BLOCK_BYTES);
  header.write(name, 0, 'latin1');
  for (const [at, field] of FIELDS) header.write(field, at, 'latin1');
  header.write(`${octal(size, 11)}\0`, 124, 'latin1');
  header.fill(' ', 148, 156);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${octal(sum, 6)}\0 `, 148, 'latin1');
  return header;
}

/** Mode, owner, group, time, type and magic: the same for every member. */
const FIELDS: readonly (readonly [number, string])[] = [
  [100, '0000600\0'],
  [108, '0000000\0'],
  [116, '0000000\0'],
  [136, '00000000000\0'],
  [156, '0'],
  [257, 'ustar\x0000'],
];

/** What follows the content of a member: zeros up to the next block. */
export function tarPadding(size: number): Buffer {
  return ZERO_BLOCK.subarray(0, (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);
}

/** What is reported about the members of an archive, in their order. Each call is awaited before the next. */
export interface TarListener {
  /** A member begins. Throws for one that must not be there. */
  onMember(name: string, size: number): Promise<void> | void;
  onBytes(bytes: Buffer): Promise<void> | void;
  onMemberEnd(): Promise<void> | void;
}

/**
 * Reads exactly the archives that `tarHeader`, `tarPadding` and `TAR_END` make: regular files, with one way to write each header.
 * Links, devices, extensions and anything behind the end are refused. Keeps one block in memory. Errors: `snapshot_damaged`.
 */
export class TarReader {
  readonly #listener: TarListener;
  readonly #block = Buffer.alloc(BLOCK_BYTES);
  #filled = 0;
  /** Bytes of the member that are still to come, and of the padding behind it. */
  #left = 0;
  #padding = 0;
  #zeroBlocks = 0;

  constructor(listener: TarListener) {
    this.#listener = listener;
  }

  async write(bytes: Buffer): Promise<void> {
    let at = 0;
    while (at < bytes.length) {
      if (this.#left > 0) {
        const part = bytes.subarray(at, at + this.#left);
        await this.#listener.onBytes(part);
        this.#left -= part.length;
        at += part.length;
        if (this.#left === 0) await this.#listener.onMemberEnd();
      } else {
        const wanted = this.#padding > 0 ? this.#padding : BLOCK_BYTES;
        const part = bytes.subarray(at, at + wanted - this.#filled);
        part.copy(this.#block, this.#filled);
        this.#filled += part.length;
        at += part.length;
        if (this.#filled === wanted) await this.#takeBlock(wanted);
      }
    }
  }

  /** Call it behind the last bytes. */
  end(): void {
    if (this.#zeroBlocks !== 2 || this.#filled > 0 || this.#left > 0)
      throw refusedBundle('it ends in the middle: it was cut off');
  }

  async #takeBlock(length: number): Promise<void> {
    const block = this.#block.subarray(0, length);
    this.#filled = 0;
    const isZero = block.equals(ZERO_BLOCK.subarray(0, length));
    if (this.#padding > 0) {
      if (!isZero) throw refusedBundle('there is something between two of its parts');
      this.#padding = 0;
      return;
    }
    if (this.#zeroBlocks === 2) throw refusedBundle('there is something behind its end');
    if (isZero) {
      this.#zeroBlocks += 1;
      return;
    }
    if (this.#zeroBlocks > 0) throw refusedBundle('there is something behind its end');
    const { name, size } = parseHeader(block);
    await this.#listener.onMember(name, size);
    this.#left = size;
    this.#padding = tarPadding(size).length;
    if (size === 0) await this.#listener.onMemberEnd();
  }
}

function parseHeader(block: Buffer): { name: string; size: number } {
  const nameEnd = block.indexOf(0);
  const name = block.toString('latin1', 0, nameEnd === -1 || nameEnd > NAME_BYTES ? NAME_BYTES : nameEnd);
  const digits = block.toString('latin1', 124, 135);
  const size = /^[0-7]{11}$/.test(digits) ? Number.parseInt(digits, 8) : -1;
  if (!NAME.test(name) || name.includes('..') || size === -1 || !tarHeader(name, size).equals(block))
    throw refusedBundle('one of its parts is not a plain file as Holdfast writes them');
  return { name, size };
}

function octal(number: number, digits: number): string {
  return number.toString(8).padStart(digits, '0');
}
