import { arch } from 'node:os';
import { closeSync } from 'node:fs';
import { errnoOf } from '../files/directory.ts';
import { loadLibc } from '../libc.ts';

/** System calls for pipes that Node lacks. */
export interface PipeCalls {
  /**
   * Moves up to `bytes` from a pipe to a file at `offset`, in the kernel: whatever moment this process is killed at, a
   * byte is either still in the pipe or already in the file. Returns the number of bytes; 0 if no process has the pipe
   * open for writing; `empty` if there is nothing yet. Errors: those of the system.
   */
  move(pipe: number, file: number, offset: number, bytes: number): number | 'empty';
  createWaiter(): PipeWaiter;
}

const SPLICE_F_NONBLOCK = 2;
const EPOLL_CLOEXEC = 0o2000000;
const EPOLL_CTL = { add: 1, remove: 2, change: 3 } as const;
const EPOLLIN = 1;
const EPOLLONESHOT = 2 ** 30;
/** struct epoll_event is packed on x64 only: events, then the caller's 64 bits. */
const EVENT = arch() === 'x64' ? { bytes: 12, data: 4 } : { bytes: 16, data: 8 };
const MAX_EVENTS = 64;

type CFunction = ReturnType<NonNullable<Awaited<ReturnType<typeof loadLibc>>>['func']>;

interface EpollCalls {
  readonly control: (epoll: number, operation: number, fd: number, event: Buffer) => void;
  readonly wait: CFunction;
}

/** Null if this machine lacks them. */
export async function loadPipeCalls(): Promise<PipeCalls | null> {
  const libc = await loadLibc('processes: native system calls are not available');
  if (libc === null) return null;
  const { checked } = libc;
  const splice = libc.func('int64_t splice(int, void *, int, void *, size_t, uint)');
  const create = libc.func('int epoll_create1(int)');
  const control = libc.func('int epoll_ctl(int, int, int, void *)');
  const wait = libc.func('int epoll_wait(int, void *, int, int)');
  const eventfd = libc.func('int eventfd(uint, int)');
  const position = Buffer.alloc(8);
  return {
    move(pipe, file, offset, bytes) {
      position.writeBigInt64LE(BigInt(offset));
      try {
        return checked(splice(pipe, null, file, position, bytes, SPLICE_F_NONBLOCK), 'splice');
      } catch (error) {
        if (errnoOf(error) === 'EAGAIN') return 'empty';
        throw error;
      }
    },
    createWaiter: () =>
      new PipeWaiter(
        checked(create(EPOLL_CLOEXEC), 'epoll_create1'),
        () => checked(eventfd(1, EPOLL_CLOEXEC), 'eventfd'),
        {
          control: (epoll, operation, fd, event) =>
            void checked(control(epoll, operation, fd, event), 'epoll_ctl'),
          wait,
        },
      ),
  };
}

/**
 * Tells when a pipe can be read, without reading it, as Node would. While any pipe is waited for, this occupies one
 * thread of Node's pool.
 */
export class PipeWaiter {
  readonly #epoll: number;
  readonly #readyDescriptor: () => number;
  readonly #calls: EpollCalls;
  readonly #events = Buffer.alloc(EVENT.bytes * MAX_EVENTS);
  readonly #pipes = new Map<number, { readonly onReadable: () => void; isArmed: boolean }>();
  #isWaiting = false;
  #ender: number | null = null;

  constructor(epoll: number, readyDescriptor: () => number, calls: EpollCalls) {
    this.#epoll = epoll;
    this.#readyDescriptor = readyDescriptor;
    this.#calls = calls;
  }

  /** Calls `onReadable` once after each `arm`. */
  add(fd: number, onReadable: () => void): void {
    this.#calls.control(this.#epoll, EPOLL_CTL.add, fd, event(0, fd));
    this.#pipes.set(fd, { onReadable, isArmed: false });
  }

  arm(fd: number): void {
    const pipe = this.#pipes.get(fd);
    if (pipe === undefined || pipe.isArmed || this.#ender !== null) return;
    pipe.isArmed = true;
    this.#calls.control(this.#epoll, EPOLL_CTL.change, fd, event(EPOLLIN | EPOLLONESHOT, fd));
    this.#wait();
  }

  /** Before the descriptor is closed. */
  remove(fd: number): void {
    if (this.#pipes.delete(fd)) this.#calls.control(this.#epoll, EPOLL_CTL.remove, fd, event(0, fd));
  }

  /** Ends the wait: a process cannot exit while a thread of its pool is in a system call. */
  close(): void {
    if (this.#ender !== null) return;
    this.#ender = this.#readyDescriptor();
    this.#calls.control(this.#epoll, EPOLL_CTL.add, this.#ender, event(EPOLLIN, this.#ender));
    if (!this.#isWaiting) this.#closeDescriptors();
  }

  #wait(): void {
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    this.#calls.wait.async(this.#epoll, this.#events, MAX_EVENTS, -1, (_error: unknown, result: unknown) => {
      this.#isWaiting = false;
      if (this.#ender !== null) {
        this.#closeDescriptors();
        return;
      }
      for (let at = 0; at < Number(result); at += 1)
        this.#report(this.#events.readInt32LE(at * EVENT.bytes + EVENT.data));
      if ([...this.#pipes.values()].some(({ isArmed }) => isArmed)) this.#wait();
    });
  }

  #report(fd: number): void {
    const pipe = this.#pipes.get(fd);
    if (pipe === undefined) return;
    pipe.isArmed = false;
    pipe.onReadable();
  }

  #closeDescriptors(): void {
    closeSync(this.#epoll);
    if (this.#ender !== null) closeSync(this.#ender);
  }
}

function event(events: number, fd: number): Buffer {
  const bytes = Buffer.alloc(EVENT.bytes);
  bytes.writeUInt32LE(events);
  bytes.writeInt32LE(fd, EVENT.data);
  return bytes;
}
