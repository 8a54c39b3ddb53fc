import type { FileHandle } from 'node:fs/promises';
import { snapshotDamaged } from '../../../snapshot-format/objects.ts';
import type { PackFile } from '../../../snapshot-format/pack-index.ts';
import type { FileHandleCache } from './file-handle-cache.ts';

/** A pack in memory. Reads return copies, because checking an object temporarily overwrites a byte before it. */
export class InMemoryPackFile implements PackFile {
  readonly size: number;
  readonly #bytes: Buffer;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.size = bytes.length;
  }

  read(offset: number, length: number): Promise<Buffer> {
    return offset + length > this.#bytes.length
      ? Promise.reject(snapshotDamaged('a pack ends too early'))
      : Promise.resolve(Buffer.from(this.#bytes.subarray(offset, offset + length)));
  }
}

/** A pack on disk, opened only for reads: there may be more packs than a process can keep open. */
export class StoredPackFile implements PackFile {
  readonly size: number;
  readonly #path: string;
  readonly #files: FileHandleCache;

  /** `size`: bytes of the file. */
  constructor(path: string, size: number, files: FileHandleCache) {
    this.#path = path;
    this.size = size;
    this.#files = files;
  }

  static async open(path: string, files: FileHandleCache): Promise<StoredPackFile> {
    const { size } = await files.use(path, (handle) => handle.stat());
    return new StoredPackFile(path, size, files);
  }

  read(offset: number, length: number): Promise<Buffer> {
    return this.#files.use(this.#path, (handle) => readAll(handle, offset, length));
  }

  close(): Promise<void> {
    return this.#files.close(this.#path);
  }
}

async function readAll(handle: FileHandle, offset: number, length: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(length);
  let done = 0;
  while (done < length) {
    const { bytesRead } = await handle.read(bytes, done, length - done, offset + done);
    if (bytesRead === 0) throw snapshotDamaged('a pack ends too early');
    done += bytesRead;
  }
  return bytes;
}
