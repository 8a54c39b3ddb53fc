import { Worker } from 'node:worker_threads';
import { errorFromWire } from '../../protocol/error-data.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { CANCELLED, SHUTTING_DOWN } from './thread-messages.ts';
import type {
  SerializedError,
  FromThread,
  StoreAnswer,
  StoreRequest,
  Task,
  TaskKind,
  TaskParams,
  TaskResult,
  ThreadOptions,
  ToThread,
} from './thread-messages.ts';

/** Limit of the thread's old space, MiB. The scan's state is outside of it. */
const THREAD_MIB = 192;
/** A small young space makes unused external memory be collected early. */
const YOUNG_MIB = 8;

/** What a task needs from its caller. */
export interface TaskContext {
  readonly signal: AbortSignal;
  readonly progress: (stage: string, done: number, of: number | undefined) => void;
  readonly call: (request: StoreRequest, bytes: Buffer) => Promise<StoreAnswer>;
}

interface Running {
  readonly kind: TaskKind;
  readonly context: TaskContext;
  readonly cancelled: Int32Array;
  readonly end: PromiseWithResolvers<TaskResult<TaskKind>>;
}

/**
 * The thread that scans and restores. It starts at the latest with the first task, and stays. Tasks run one at a time,
 * in order.
 */
export class SnapshotThread {
  readonly #program: string | URL;
  readonly #options: ThreadOptions;
  #worker: Worker | undefined;
  #running: Running | undefined;
  #queue: Promise<unknown> = Promise.resolve();
  #hasRunTask = false;
  /** Tasks that have not ended. */
  #openTasks = 0;

  /** `program`: the file of `thread.ts`. */
  constructor(program: string | URL, options: ThreadOptions) {
    this.#program = program;
    this.#options = options;
  }

  /** It has run a task, and has none now. */
  get isIdle(): boolean {
    return this.#worker !== undefined && this.#hasRunTask && this.#openTasks === 0;
  }

  /** Starts the thread early, so that the first task does not wait for it. */
  start(): void {
    this.#worker ??= this.#start();
  }

  /** Errors: HoldfastError. After a cancellation it waits until the thread has released everything. */
  run<K extends TaskKind>(kind: K, params: TaskParams<K>, context: TaskContext): Promise<TaskResult<K>> {
    // Saving the scan cache yields to any other task.
    if (this.#running?.kind === 'save-scan-cache') Atomics.store(this.#running.cancelled, 0, CANCELLED);
    this.#openTasks += 1;
    const turn = this.#queue
      .then(() => this.#perform({ kind, params } as Task, context))
      .finally(() => (this.#openTasks -= 1));
    this.#queue = turn.catch(() => undefined);
    // The thread answers a task with a result of its kind.
    return turn as Promise<TaskResult<K>>;
  }

  /** Ends the running task with `connection_closed`. Resolves when no task runs, so that all modes are restored. */
  async shutDown(): Promise<void> {
    if (this.#running !== undefined) Atomics.store(this.#running.cancelled, 0, SHUTTING_DOWN);
    await this.#queue;
  }

  async #perform(task: Task, context: TaskContext): Promise<TaskResult<TaskKind>> {
    const { signal } = context;
    signal.throwIfAborted();
    const cancelled = new Int32Array(new SharedArrayBuffer(4));
    const end = Promise.withResolvers<TaskResult<TaskKind>>();
    this.#running = { kind: task.kind, context, cancelled, end };
    const cancel = (): void => {
      Atomics.store(cancelled, 0, CANCELLED);
    };
    signal.addEventListener('abort', cancel);
    try {
      this.#hasRunTask = true;
      this.#post({ kind: 'task', task, cancelled });
      return await end.promise;
    } finally {
      signal.removeEventListener('abort', cancel);
      this.#running = undefined;
    }
  }

  #post(message: ToThread, transfer: ArrayBuffer[] = []): void {
    this.#worker ??= this.#start();
    this.#worker.postMessage(message, transfer);
  }

  #start(): Worker {
    const worker = new Worker(this.#program, {
      workerData: this.#options,
      // Node would warn about each descriptor that native calls open and Node closes.
      trackUnmanagedFds: false,
      resourceLimits: { maxOldGenerationSizeMb: THREAD_MIB, maxYoungGenerationSizeMb: YOUNG_MIB },
    });
    worker.unref();
    worker.on('message', (message: FromThread) => this.#onMessage(message));
    const lost = (cause: unknown): void => {
      if (this.#worker === worker) {
        this.#worker = undefined;
        this.#hasRunTask = false;
      }
      const why = cause instanceof Error ? cause.message : 'the snapshot thread exited';
      this.#running?.end.reject(
        new HoldfastError('internal', 'The workspace could not be scanned', { why, cause }),
      );
    };
    worker.on('error', lost);
    worker.on('exit', lost);
    return worker;
  }

  #onMessage(message: FromThread): void {
    const running = this.#running;
    if (running === undefined) return;
    switch (message.kind) {
      case 'call':
        void this.#call(running, message.id, message.request, message.bytes);
        break;
      case 'progress':
        running.context.progress(message.stage, message.done, message.of);
        break;
      case 'done':
        running.end.resolve(message.result);
        break;
      case 'failed':
        running.end.reject(errorFromWire(message.failure.message, message.failure.data));
        break;
    }
  }

  async #call({ context }: Running, id: number, request: StoreRequest, bytes: Uint8Array): Promise<void> {
    try {
      const answer = await context.call(
        request,
        Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength),
      );
      const copy = Uint8Array.prototype.slice.call(answer.bytes);
      this.#post({ kind: 'answer', id, answer: { frames: answer.frames, bytes: copy } }, [copy.buffer]);
    } catch (error) {
      this.#post({ kind: 'refusal', id, failure: failureOf(error) });
    }
  }
}

function failureOf(error: unknown): SerializedError {
  const typed = HoldfastError.from(error, 'The store did not answer');
  return { message: typed.message, data: typed.toData() };
}
