import { Worker } from 'node:worker_threads';
import { unifiedHunks } from './hunks.ts';
import type { LineLimits } from './line-changes.ts';
import type { LineWork } from './line-worker.ts';

/** Comparing the lines of one file may take this long; then what is left is replaced as a whole. */
const LIMITS: LineLimits = { ms: 2000, edits: 2000 };
/** Replaces all that differs between the first and the last equal lines: costs nothing, always true. */
const REPLACE: LineLimits = { ms: 0, edits: 0 };
/** The thread checks its own time; this ends one that does not answer all the same. */
const LATEST_MS = 4 * LIMITS.ms;
const HEAP_MB = 512;

/** A thread that compares lines, for as long as one patch is written. `end` it. */
export class LineThread {
  readonly #program: string | URL;
  #worker: Worker | null = null;

  /** `program`: the file of line-worker. The thread starts with the first text. */
  constructor(program: string | URL) {
    this.#program = program;
  }

  /** The hunks that turn `before` into `after`; one call at a time. A thread that fails costs neatness, never the patch. */
  async hunks(before: Buffer, after: Buffer): Promise<Buffer> {
    const worker = (this.#worker ??= this.#start());
    const found = await new Promise<Uint8Array | null>((resolve) => {
      const finish = (hunks: Uint8Array | null): void => {
        clearTimeout(timer);
        worker.off('message', finish).off('error', fail).off('exit', fail);
        resolve(hunks);
      };
      const fail = (): void => finish(null);
      const timer = setTimeout(fail, LATEST_MS);
      worker.on('message', finish).on('error', fail).on('exit', fail);
      worker.postMessage({ before, after, ...LIMITS } satisfies LineWork);
    });
    if (found !== null) return Buffer.from(found.buffer, found.byteOffset, found.byteLength);
    await this.close();
    return unifiedHunks(before, after, REPLACE);
  }

  #start(): Worker {
    const worker = new Worker(this.#program, {
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB },
      // It needs nothing of what this process was started with.
      execArgv: [],
      env: {},
    });
    // Each call listens too; an error between two calls must not end this process.
    worker.on('error', () => undefined);
    return worker;
  }

  async close(): Promise<void> {
    const worker = this.#worker;
    this.#worker = null;
    await worker?.terminate();
  }
}
