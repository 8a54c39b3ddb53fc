import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';

interface Limits {
  readonly maxBytes: number;
  readonly maxTotalBytes: number;
}

const MEBIBYTE = 2 ** 20;
const LIMITS: Limits = { maxBytes: 4 * MEBIBYTE, maxTotalBytes: 64 * MEBIBYTE };

const StoredSchema = z.object({ version: z.string(), text: z.string() });

/**
 * The base texts of unsaved documents in a folder of the extension: a document that VS Code restores after a reload of the
 * window can still be merged. One file for each document, the most recent ones up to a limit. A text that cannot be
 * written or read is none: a save then asks instead of merging.
 */
export class StoredBaseTexts {
  readonly #folder: string;
  readonly #limits: Limits;
  /** Bytes by file name, the most recent last. */
  readonly #sizes = new Map<string, number>();
  /** One operation after the other, so that the last one decides. */
  #queue: Promise<unknown>;

  /** `keys`: the documents that have unsaved text. The texts of others are removed. */
  constructor(folder: string, keys: Iterable<string>, limits: Limits = LIMITS) {
    this.#folder = folder;
    this.#limits = limits;
    const kept = new Set(Array.from(keys, fileName));
    this.#queue = this.#load(kept).catch(() => undefined);
  }

  set(key: string, version: string, text: string): Promise<void> {
    return this.#enqueue(async () => {
      const name = fileName(key);
      const content = Buffer.from(JSON.stringify({ version, text }));
      await this.#remove(name);
      if (content.length > this.#limits.maxBytes) return;
      await mkdir(this.#folder, { recursive: true, mode: 0o700 });
      // Renamed when it is complete: a window may end at any moment.
      const temporary = join(this.#folder, `${randomUUID()}.tmp`);
      try {
        await writeFile(temporary, content, { mode: 0o600 });
        await rename(temporary, join(this.#folder, name));
      } catch (error) {
        await rm(temporary, { force: true });
        throw error;
      }
      this.#sizes.set(name, content.length);
      let total = [...this.#sizes.values()].reduce((sum, size) => sum + size, 0);
      for (const [oldest, size] of this.#sizes) {
        if (total <= this.#limits.maxTotalBytes) return;
        await this.#remove(oldest);
        total -= size;
      }
    });
  }

  /** The text of exactly this version; undefined where it is not stored. */
  async get(key: string, version: string): Promise<string | undefined> {
    let found: string | undefined;
    await this.#enqueue(async () => {
      const name = fileName(key);
      if (!this.#sizes.has(name)) return;
      const content = await readFile(join(this.#folder, name), 'utf8');
      const stored = StoredSchema.parse(JSON.parse(content));
      if (stored.version === version) found = stored.text;
    });
    return found;
  }

  forget(key: string): Promise<void> {
    return this.#enqueue(() => this.#remove(fileName(key)));
  }

  #enqueue(work: () => Promise<void>): Promise<void> {
    const done = this.#queue.then(work).catch(() => undefined);
    this.#queue = done;
    return done;
  }

  async #load(kept: ReadonlySet<string>): Promise<void> {
    for (const name of await readdir(this.#folder)) {
      const path = join(this.#folder, name);
      if (kept.has(name)) this.#sizes.set(name, (await stat(path)).size);
      else await rm(path, { force: true });
    }
  }

  async #remove(name: string): Promise<void> {
    if (!this.#sizes.delete(name)) return;
    await rm(join(this.#folder, name), { force: true });
  }
}

function fileName(key: string): string {
  return `${createHash('sha256').update(key).digest('hex')}.json`;
}
