import type { Frame } from './framing.ts';

/** Maximum requests of one connection per turn of the event loop, so that responses and other connections get their turn. */
const REQUESTS_PER_TURN = 16;

export interface FrameQueueOwner {
  readonly receive: (frame: Frame) => void;
  /** Whether the other side reads its responses fast enough to start another of its requests. */
  readonly mayStartRequest: () => boolean;
  /** Called when frames begin to wait, and when no frame waits any more. */
  readonly onBacklogChange: () => void;
}

/**
 * Delivers frames in order of arrival, a few requests per turn of the event loop. Frames after a response wait for the
 * next turn, so that its caller (a subscription, the start of an exec) continues before it gets its first notification.
 * Buffers at most one chunk of the stream if the owner stops reading while frames wait.
 */
export class FrameQueue {
  readonly #owner: FrameQueueOwner;
  #waiting: Frame[] = [];
  /** Index of the next frame in `#waiting`. */
  #next = 0;
  #turn: NodeJS.Immediate | undefined;
  #hasDeliveredResponse = false;
  #startedRequests = 0;
  #closed = false;

  constructor(owner: FrameQueueOwner) {
    this.#owner = owner;
  }

  get isEmpty(): boolean {
    return this.#next === this.#waiting.length;
  }

  accept(frame: Frame): void {
    if (this.#closed) return;
    if (this.isEmpty && this.#mayDeliver(frame)) {
      this.#deliver(frame);
      return;
    }
    const wasIdle = this.isEmpty;
    this.#waiting.push(frame);
    if (wasIdle) this.#owner.onBacklogChange();
  }

  /** Continues delivering, because the other side has caught up. */
  resume(): void {
    if (!this.isEmpty && !this.#closed) this.#turn ??= setImmediate(this.#onTurn);
  }

  /** The connection has ended: delivers waiting responses and notifications, and drops waiting requests. */
  flush(): void {
    const rest = this.#waiting.slice(this.#next);
    this.#clear();
    for (const frame of rest) {
      if (!this.#isClosed() && !isRequest(frame)) this.#owner.receive(frame);
    }
  }

  close(): void {
    this.#closed = true;
    this.#clear();
    clearImmediate(this.#turn);
    this.#turn = undefined;
  }

  #isClosed(): boolean {
    return this.#closed;
  }

  #clear(): void {
    this.#waiting = [];
    this.#next = 0;
  }

  #mayDeliver(frame: Frame): boolean {
    if (isResponse(frame)) return true;
    if (this.#hasDeliveredResponse) return false;
    return !isRequest(frame) || (this.#startedRequests < REQUESTS_PER_TURN && this.#owner.mayStartRequest());
  }

  #deliver(frame: Frame): void {
    if (isResponse(frame)) this.#hasDeliveredResponse = true;
    else if (isRequest(frame)) this.#startedRequests += 1;
    if (this.#hasDeliveredResponse || this.#startedRequests >= REQUESTS_PER_TURN)
      this.#turn ??= setImmediate(this.#onTurn);
    this.#owner.receive(frame);
  }

  readonly #onTurn = (): void => {
    this.#turn = undefined;
    this.#hasDeliveredResponse = false;
    this.#startedRequests = 0;
    if (this.isEmpty) return;
    for (let frame = this.#waiting[this.#next]; frame !== undefined; frame = this.#waiting[this.#next]) {
      if (!this.#mayDeliver(frame)) return;
      this.#next += 1;
      this.#deliver(frame);
    }
    this.#clear();
    if (!this.#closed) this.#owner.onBacklogChange();
  };
}

function isResponse({ message }: Frame): boolean {
  return typeof message['method'] !== 'string';
}

function isRequest(frame: Frame): boolean {
  return !isResponse(frame) && frame.message['id'] !== undefined;
}
