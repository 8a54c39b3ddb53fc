import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { join } from 'node:path';
import { isEncoding, FrameBuilder, extractObject, decompressFrame } from '../../../snapshot-format/frames.ts';
import type { PackObject } from '../../../snapshot-format/pack-index.ts';
import { readStoredFrame } from '../../../snapshot-format/pack-index.ts';
import { PackWriter } from '../../../snapshot-format/pack-writer.ts';
import type { StoredPack } from '../store/lineage-store.ts';

/**
 * Copies objects of existing packs into new pack files in a directory. Nobody else sees these files until they are
 * published.
 */
export class PackCopy {
  readonly #directory: string;
  readonly #files: string[] = [];
  #writer = new PackWriter();
  #builder = new FrameBuilder();
  #handle: FileHandle | null = null;
  #bytes = 0;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Bytes written so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Copies objects of one frame; the compressed frame as it is if all its objects are needed. Throws `snapshot_damaged`
   * for an unreadable frame.
   */
  async add(
    pack: StoredPack,
    frameIndex: number,
    all: readonly PackObject[],
    needed: readonly PackObject[],
  ): Promise<void> {
    const frame = pack.index.frame(frameIndex);
    const stored = await readStoredFrame(pack.file, frame);
    const raw = decompressFrame(frame.encoding, frame.rawLength, stored);
    const bodies = needed.map((object) => extractObject(raw, object));
    if (needed.length === all.length && isEncoding(frame.encoding)) {
      const { encoding, rawLength, checksum } = frame;
      await this.#append({ encoding, rawLength, stored, checksum, objects: needed });
      return;
    }
    for (const [at, { hash, kind }] of needed.entries()) {
      // A copy, so that one small object does not keep its whole frame in memory.
      const body = Buffer.from(bodies[at] ?? []);
      if (this.#builder.add(hash, kind, body)) continue;
      await this.#append(this.#builder.finish());
      this.#builder.add(hash, kind, body);
    }
  }

  /** Completes the files and returns their paths. They are durable. */
  async end(): Promise<string[]> {
    if (!this.#builder.isEmpty) await this.#append(this.#builder.finish());
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
