import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { join } from 'node:path';
import type { PackObject } from '../../../snapshot-format/pack-index.ts';
import { PackWriter } from '../../../snapshot-format/pack-writer.ts';
import type { StoredPack } from '../store/lineage-store.ts';
import { FrameCopy } from './frame-copy.ts';

/**
 * Copies objects of existing packs into new pack files in a directory. Nobody else sees these files until they are
 * published.
 */
export class PackCopy {
  readonly #directory: string;
  readonly #files: string[] = [];
  #writer = new PackWriter();
  readonly #frames = new FrameCopy((frame) => this.#append(frame));
  #handle: FileHandle | null = null;
  #bytes = 0;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Bytes written so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /** As `FrameCopy.add`. */
  add(
    pack: StoredPack,
    frameIndex: number,
    all: readonly PackObject[],
    needed: readonly PackObject[],
  ): Promise<void> {
    return this.#frames.add(pack, frameIndex, all, needed);
  }

  /** Completes the files and returns their paths. They are durable. */
  async end(): Promise<string[]> {
    await this.#frames.end();
    await this.#endFile();
    return this.#files;
  }

  /** Closes the open file when `end` was not reached. The written files stay in the directory. */
  async abandon(): Promise<void> {
    await this.#handle?.close();
    this.#handle = null;
  }

  async #append(frame: Parameters<PackWriter['append']>[0]): Promise<void> {
    if (this.#writer.isFull) await this.#endFile();
    if (this.#handle === null) {
      await mkdir(this.#directory, { recursive: true, mode: 0o700 });
      const path = join(this.#directory, `${this.#files.length}.pack`);
      this.#handle = await open(path, 'wx', 0o600);
      this.#files.push(path);
    }
    for (const part of this.#writer.append(frame)) await this.#write(this.#handle, part);
  }

  async #endFile(): Promise<void> {
    if (this.#handle === null) return;
    await this.#write(this.#handle, this.#writer.end());
    await this.#handle.datasync();
    await this.#handle.close();
    this.#handle = null;
    this.#writer = new PackWriter();
  }

  async #write(handle: FileHandle, bytes: Buffer): Promise<void> {
    let written = 0;
    while (written < bytes.length) {
      written += (await handle.write(bytes, written, bytes.length - written)).bytesWritten;
    }
    this.#bytes += bytes.length;
  }
}
