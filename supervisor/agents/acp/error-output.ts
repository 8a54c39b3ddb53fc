import type { ProcessChannel, ProcessStatus } from '../../workspace/process-channel.ts';
import type { ErrorOutput } from './conversation-store.ts';

const READ_BYTES = 64 * 1024;
/** Of one turn. What an agent writes beyond that is read and not stored, because an agent whose errors nobody reads stops. */
const STORED_BYTES = 1024 * 1024;
/** The end that an error of the turn quotes. */
const TAIL_BYTES = 2000;

/** The standard error of an agent's process: stored with the turn that runs, up to a limit. */
export class ErrorOutputReader {
  readonly #channel: ProcessChannel;
  #turnId: string | null = null;
  /** Bytes that the turn has, with those that wait to be stored. */
  #ofTurn = 0;
  #waiting: Buffer[] = [];
  #tail: Buffer = Buffer.alloc(0);
  #offset: number;

  constructor(channel: ProcessChannel, offset: number) {
    this.#channel = channel;
    this.#offset = offset;
  }

  /** Everything before it was taken. */
  get offset(): number {
    return this.#offset;
  }

  /** `stored`: bytes that the turn has already. */
  beginTurn(turnId: string, stored = 0): void {
    this.#turnId = turnId;
    this.#ofTurn = stored;
    this.#waiting = [];
    this.#tail = Buffer.alloc(0);
  }

  /** The end of what came during the turn. */
  tail(): string {
    return this.#tail.toString('utf8');
  }

  async read(id: string, status: ProcessStatus): Promise<void> {
    while (this.#offset < status.stderr.end) {
      const { offset, bytes } = await this.#channel.read({
        id,
        stream: 'stderr',
        offset: this.#offset,
        limit: READ_BYTES,
        waitMs: 0,
      });
      if (bytes.length === 0) return;
      // Further than asked for where an earlier supervisor acknowledged what came between two turns.
      this.#offset = offset + bytes.length;
      this.#tail = Buffer.concat([this.#tail, bytes]).subarray(-TAIL_BYTES);
      const kept = bytes.subarray(0, Math.max(0, STORED_BYTES - this.#ofTurn));
      if (kept.length === 0) continue;
      this.#waiting.push(kept);
      this.#ofTurn += kept.length;
    }
  }

  /** What came between two turns belongs to none. */
  discard(status: ProcessStatus): void {
    this.#offset = Math.max(this.#offset, status.stderr.end);
  }

  /** What is to be stored now; null for nothing. */
  take(): ErrorOutput | null {
    if (this.#turnId === null || this.#waiting.length === 0) return null;
    const bytes = Buffer.concat(this.#waiting);
    this.#waiting = [];
    return { turnId: this.#turnId, offset: this.#ofTurn - bytes.length, bytes };
  }

  /** Reads again from an offset that is stored. */
  seek(offset: number): void {
    this.#ofTurn = Math.max(0, this.#ofTurn - (this.#offset - offset));
    this.#offset = offset;
    this.#waiting = [];
  }

  reset(): void {
    this.#offset = 0;
    this.#waiting = [];
  }
}
