import { Worker } from 'node:worker_threads';
import { unifiedHunks } from './hunks.ts';
import { type LineChange, type LineLimits, oneChange } from './line-changes.ts';
import type { LineWork } from './line-worker.ts';

/** Limits for comparing the lines of one file; beyond them the rest is replaced as a whole. */
const LIMITS: LineLimits = { ms: 2000, edits: 2000 };
/** The thread limits its own time; this timeout ends a thread that does not answer. */
const ANSWER_TIMEOUT_MS = 4 * LIMITS.ms;
const HEAP_MB = 512;

/** A worker thread that compares lines while one patch is written. The owner calls `close`. */
export class LineThread {
  readonly #program: string | URL;
  #worker: Worker | null = null;

  /** `program`: path of the line-worker program. The thread starts with the first text. */
  constructor(program: string | URL) {
    this.#program = program;
  }

  /**
   * The hunks that turn `before` into `after`; one call at a time. If the thread fails, the hunks are coarse but
   * correct.
   */
  async hunks(before: Buffer, after: Buffer): Promise<Buffer> {
    const found = await this.#ask('hunks', before, after);
    if (found !== null) return Buffer.from(found.buffer, found.byteOffset, found.byteLength);
    await this.close();
    return unifiedHunks(before, after, null);
  }

  /** As `hunks`, without the text: which lines change. */
  async changes(before: Buffer, after: Buffer): Promise<LineChange[]> {
    const found = await this.#ask('changes', before, after);
    if (found === null) {
      await this.close();
      return oneChange(before, after);
    }
    const numbers = new Uint32Array(found.buffer, found.byteOffset, found.byteLength / 4);
    return Array.from({ length: numbers.length / 4 }, (_, index) => {
      const [beforeStart = 0, beforeEnd = 0, afterStart = 0, afterEnd = 0] = numbers.subarray(index * 4);
      return { beforeStart, beforeEnd, afterStart, afterEnd };
    });
  }

  /** Null if the thread fails. */
  async #ask(wanted: LineWork['wanted'], before: Buffer, after: Buffer): Promise<Uint8Array | null> {
    const worker = (this.#worker ??= this.#start());
    return await new Promise<Uint8Array | null>((resolve) => {
      const finish = (answer: Uint8Array | null): void => {
        clearTimeout(timer);
        worker.off('message', finish).off('error', fail).off('exit', fail);
        resolve(answer);
      };
      const fail = (): void => finish(null);
      const timer = setTimeout(fail, ANSWER_TIMEOUT_MS);
      worker.on('message', finish).on('error', fail).on('exit', fail);
      worker.postMessage({ wanted, before, after, ...LIMITS } satisfies LineWork);
    });
  }

  #start(): Worker {
    const worker = new Worker(this.#program, {
      resourceLimits: { maxOldGenerationSizeMb: HEAP_MB },
      // The thread needs none of this process's flags and variables.
      execArgv: [],
      env: {},
    });
    // Each call has its own listener. This one keeps an error between two calls from ending the process.
    worker.on('error', () => undefined);
    return worker;
  }

  async close(): Promise<void> {
    const worker = this.#worker;
    this.#worker = null;
    await worker?.terminate();
  }
}
