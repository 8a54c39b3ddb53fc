import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { damaged } from '../../../protocol/snapshots/objects.ts';
import type { PackFile } from '../../../protocol/snapshots/pack-index.ts';

const { O_RDONLY, O_NOFOLLOW } = constants;

/** A pack on the disk, open for reading. */
export class OpenPackFile implements PackFile {
  readonly size: number;
  readonly #handle: FileHandle;

  constructor(handle: FileHandle, size: number) {
    this.#handle = handle;
    this.size = size;
  }

  static async open(path: string): Promise<OpenPackFile> {
    const handle = await open(path, O_RDONLY | O_NOFOLLOW);
    try {
      return new OpenPackFile(handle, (await handle.stat()).size);
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  async read(offset: number, length: number): Promise<Buffer> {
    const bytes = Buffer.allocUnsafe(length);
    let done = 0;
    while (done < length) {
      const { bytesRead } = await this.#handle.read(bytes, done, length - done, offset + done);
      if (bytesRead === 0) throw damaged('a pack ends too early');
      done += bytesRead;
    }
    return bytes;
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }
}
