import type { Frame } from './framing.ts';

/** Requests of one connection that start in one turn of the event loop: their answers, and other connections, come in between. */
const REQUESTS_A_TURN = 16;

export interface FrameQueueOwner {
  readonly receive: (frame: Frame) => void;
  /** Whether the other side keeps up, so that more of what it asks may be started. */
  readonly mayStartRequest: () => boolean;
  /** Called when frames have to wait, and when none waits any more. */
  readonly onBacklogChange: () => void;
}

/**
 * Hands frames on in the order of arrival, a few requests at a time. What follows an answer waits one turn of the event loop, so
 * that the caller of that answer (a subscription, the start of an exec) has gone on before it hears what belongs to it.
 * It keeps no more than one chunk of the stream if its owner stops reading while frames wait.
 */
export class FrameQueue {
  readonly #owner: FrameQueueOwner;
  #waiting: Frame[] = [];
  /** Place in `#waiting` of the next frame. */
  #next = 0;
  #turn: NodeJS.Immediate | undefined;
  #answered = false;
  #started = 0;
  #closed = false;

  constructor(owner: FrameQueueOwner) {
    this.#owner = owner;
  }

  get isEmpty(): boolean {
    return this.#next === this.#waiting.length;
  }

  accept(frame: Frame): void {
    if (this.#closed) return;
    if (this.isEmpty && this.#mayHandOn(frame)) {
      this.#handOn(frame);
      return;
    }
    const wasIdle = this.isEmpty;
    this.#waiting.push(frame);
    if (wasIdle) this.#owner.onBacklogChange();
  }

  /** The other side has caught up: goes on with what waits. */
  resume(): void {
    if (!this.isEmpty && !this.#closed) this.#turn ??= setImmediate(this.#onTurn);
  }

  /** The connection is over: hands on what was said, but starts nothing that nobody waits for any more. */
  flush(): void {
    const rest = this.#waiting.slice(this.#next);
    this.#empty();
    for (const frame of rest) {
      if (!this.#isClosed() && !isRequest(frame)) this.#owner.receive(frame);
    }
  }

  close(): void {
    this.#closed = true;
    this.#empty();
    clearImmediate(this.#turn);
    this.#turn = undefined;
  }

  #isClosed(): boolean {
    return this.#closed;
  }

  #empty(): void {
    this.#waiting = [];
    this.#next = 0;
  }

  #mayHandOn(frame: Frame): boolean {
    if (isAnswer(frame)) return true;
    if (this.#answered) return false;
    return !isRequest(frame) || (this.#started < REQUESTS_A_TURN && this.#owner.mayStartRequest());
  }

  #handOn(frame: Frame): void {
    if (isAnswer(frame)) this.#answered = true;
    else if (isRequest(frame)) this.#started += 1;
    if (this.#answered || this.#started >= REQUESTS_A_TURN) this.#turn ??= setImmediate(this.#onTurn);
    this.#owner.receive(frame);
  }

  readonly #onTurn = (): void => {
    this.#turn = undefined;
    this.#answered = false;
    this.#started = 0;
    if (this.isEmpty) return;
    for (let frame = this.#waiting[this.#next]; frame !== undefined; frame = this.#waiting[this.#next]) {
      if (!this.#mayHandOn(frame)) return;
      this.#next += 1;
      this.#handOn(frame);
    }
    this.#empty();
    if (!this.#closed) this.#owner.onBacklogChange();
  };
}

function isAnswer({ message }: Frame): boolean {
  return typeof message['method'] !== 'string';
}

function isRequest(frame: Frame): boolean {
  return !isAnswer(frame) && frame.message['id'] !== undefined;
}
