import { readContent } from '../../../snapshot-format/content.ts';
import type { FileEntry } from '../../../snapshot-format/entries.ts';
import type { ObjectReader } from '../../../snapshot-format/objects.ts';
import { KeyedMutex } from '../../base/keyed-mutex.ts';
import { type LineChange, lineChanges } from './line-changes.ts';
import { LineThread } from './line-thread.ts';

/** Comparing shorter texts takes less time than asking another thread. */
const IN_PLACE = { bytes: 32 * 1024, ms: 20, edits: 500 } as const;
/** A text with more changes is one change from the first to the last of them: nobody decides so many one by one. */
const MAX_CHANGES = 5000;
/** Compared texts that are remembered. */
const MAX_REMEMBERED = 64;
/** An unused thread ends after this time. */
const IDLE_MS = 30_000;

/** Finds the changed lines of texts, long ones in a thread of its own. */
export class TextComparison {
  readonly #thread: LineThread;
  readonly #mutex = new KeyedMutex();
  readonly #known = new Map<string, readonly LineChange[]>();
  #idle: NodeJS.Timeout | null = null;

  /** `lineWorker`: path of the worker program that compares lines. */
  constructor(lineWorker: string | URL) {
    this.#thread = new LineThread(lineWorker);
  }

  /** `id`: the same for the same two texts. */
  async changes(id: string, base: Buffer, target: Buffer): Promise<readonly LineChange[]> {
    const known = this.#known.get(id);
    if (known !== undefined) return known;
    const found = limited(await this.#compare(base, target));
    this.#known.set(id, found);
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= MAX_REMEMBERED) break;
      this.#known.delete(oldest);
    }
    return found;
  }

  async close(): Promise<void> {
    if (this.#idle !== null) clearTimeout(this.#idle);
    await this.#mutex.drained();
    await this.#thread.close();
  }

  async #compare(base: Buffer, target: Buffer): Promise<LineChange[]> {
    if (base.length + target.length <= IN_PLACE.bytes) return lineChanges(base, target, IN_PLACE);
    if (this.#idle !== null) clearTimeout(this.#idle);
    const found = await this.#mutex.run('', () => this.#thread.changes(base, target));
    if (this.#idle !== null) clearTimeout(this.#idle);
    this.#idle = setTimeout(() => void this.#mutex.run('', () => this.#thread.close()), IDLE_MS).unref();
    return found;
  }
}

function limited(changes: LineChange[]): readonly LineChange[] {
  const first = changes[0];
  const last = changes.at(-1);
  if (changes.length <= MAX_CHANGES || first === undefined || last === undefined) return changes;
  const { beforeStart, afterStart } = first;
  const { beforeEnd, afterEnd } = last;
  return [{ beforeStart, beforeEnd, afterStart, afterEnd }];
}

/** The bytes as a read of the file returns them: holes are zeros. The caller has checked the size. */
export async function fileBytes(reader: ObjectReader, file: FileEntry): Promise<Buffer> {
  const bytes = Buffer.alloc(file.size);
  for await (const extent of readContent(reader, file)) bytes.set(extent.bytes, extent.offset);
  return bytes;
}
