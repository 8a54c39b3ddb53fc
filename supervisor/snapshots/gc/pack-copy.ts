import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { join } from 'node:path';
import { isEncoding, FrameBuilder, extractObject, decompressFrame } from '../../../snapshot-format/frames.ts';
import type { PackObject } from '../../../snapshot-format/pack-index.ts';
import { readStoredFrame } from '../../../snapshot-format/pack-index.ts';
import { PackWriter } from '../../../snapshot-format/pack-writer.ts';
import type { StoredPack } from '../store/lineage-store.ts';

/** Writes objects that are in packs already into new pack files of a folder. Nothing else knows of them until they are published. */
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

  /** Bytes of the files so far. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Copies these objects of one frame: as it is stored where they are all that is in it. Throws `snapshot_damaged` where it cannot be
   * read.
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
      // A copy: else one small object would keep its whole frame in memory.
      const body = Buffer.from(bodies[at] ?? []);
      if (this.#builder.add(hash, kind, body)) continue;
      await this.#append(this.#builder.finish());
      this.#builder.add(hash, kind, body);
    }
  }

  /** Ends it: the paths of the files, complete and durable. */
  async end(): Promise<string[]> {
    if (!this.#builder.isEmpty) await this.#append(this.#builder.finish());
    await this.#endFile();
    return this.#files;
  }

  /** Where `end` was not reached: lets go of the file. What was written is in the folder. */
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
