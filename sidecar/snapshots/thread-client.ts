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

/** Old space of the thread, MiB: what it knows of files is kept outside of it. */
const THREAD_MIB = 192;
/** Little, so that memory outside of it that nobody needs any more is found soon. */
const YOUNG_MIB = 8;

/** What a task needs of whoever asked for it. */
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

/** The thread that looks after snapshots. It starts with the first task, if not before, and stays; one task at a time, the others wait. */
export class SnapshotThread {
  readonly #program: string | URL;
  readonly #places: ThreadOptions;
  #worker: Worker | undefined;
  #running: Running | undefined;
  #queue: Promise<unknown> = Promise.resolve();
  #hasLooked = false;
  /** Tasks that have not ended. */
  #asked = 0;

  /** `program`: the file of `thread.ts`. */
  constructor(program: string | URL, places: ThreadOptions) {
    this.#program = program;
    this.#places = places;
  }

  /** It has looked at something, and does nothing now. */
  get isIdle(): boolean {
    return this.#worker !== undefined && this.#hasLooked && this.#asked === 0;
  }

  /** Starts it before it has something to do: nobody waits for that then. */
  start(): void {
    this.#worker ??= this.#start();
  }

  /** Rejects with a HoldfastError. After a cancellation it waits until the thread has let go of everything. */
  run<K extends TaskKind>(kind: K, params: TaskParams<K>, context: TaskContext): Promise<TaskResult<K>> {
    // Keeping what is known can wait, and whoever asks for anything else does not wait for it.
    if (this.#running?.kind === 'save-scan-cache') Atomics.store(this.#running.cancelled, 0, CANCELLED);
    this.#asked += 1;
    const turn = this.#queue
      .then(() => this.#perform({ kind, params } as Task, context))
      .finally(() => (this.#asked -= 1));
    this.#queue = turn.catch(() => undefined);
    // The thread answers a task with a result of its kind.
    return turn as Promise<TaskResult<K>>;
  }

  /** Ends what is done with `connection_closed`, and settles when nothing is: what was lent has been given back then. */
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
      this.#hasLooked = true;
      this.#say({ kind: 'task', task, cancelled });
      return await end.promise;
    } finally {
      signal.removeEventListener('abort', cancel);
      this.#running = undefined;
    }
  }

  #say(message: ToThread, transfer: ArrayBuffer[] = []): void {
    this.#worker ??= this.#start();
    this.#worker.postMessage(message, transfer);
  }

  #start(): Worker {
    const worker = new Worker(this.#program, {
      workerData: this.#places,
      // Descriptors that native calls open are closed by Node, which would complain of each.
      trackUnmanagedFds: false,
      resourceLimits: { maxOldGenerationSizeMb: THREAD_MIB, maxYoungGenerationSizeMb: YOUNG_MIB },
    });
    worker.unref();
    worker.on('message', (message: FromThread) => this.#hear(message));
    const lost = (cause: unknown): void => {
      if (this.#worker === worker) {
        this.#worker = undefined;
        this.#hasLooked = false;
      }
      const why = cause instanceof Error ? cause.message : 'its thread ended';
      this.#running?.end.reject(
        new HoldfastError('internal', 'The workspace could not be looked through', { why, cause }),
      );
    };
    worker.on('error', lost);
    worker.on('exit', lost);
    return worker;
  }

  #hear(message: FromThread): void {
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
      const own = Uint8Array.prototype.slice.call(answer.bytes);
      this.#say({ kind: 'answer', id, answer: { frames: answer.frames, bytes: own } }, [own.buffer]);
    } catch (error) {
      this.#say({ kind: 'refusal', id, failure: failureOf(error) });
    }
  }
}

function failureOf(error: unknown): SerializedError {
  const typed = HoldfastError.from(error, 'The store did not answer');
  return { message: typed.message, data: typed.toData() };
}
