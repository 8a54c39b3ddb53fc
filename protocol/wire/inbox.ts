import type { Frame } from './framing.ts';

/**
 * Hands frames on in the order of arrival. What follows an answer waits one turn of the event loop, so that the caller of
 * that answer (a subscription, the start of an exec) has gone on before it hears what belongs to it.
 */
export class Inbox {
  readonly #receive: (frame: Frame) => void;
  readonly #onIdle: () => void;
  #waiting: Frame[] = [];
  #turn: NodeJS.Immediate | undefined;
  #closed = false;

  /** `onIdle` is called when frames that had to wait have all been handed on. */
  constructor(receive: (frame: Frame) => void, onIdle: () => void) {
    this.#receive = receive;
    this.#onIdle = onIdle;
  }

  get isIdle(): boolean {
    return this.#waiting.length === 0;
  }

  accept(frame: Frame): void {
    if (this.#closed) return;
    const isAnswer = typeof frame.message['method'] !== 'string';
    if (this.#waiting.length > 0 || (this.#turn !== undefined && !isAnswer)) {
      this.#waiting.push(frame);
      return;
    }
    if (isAnswer) this.#turn ??= setImmediate(this.#onTurn);
    this.#receive(frame);
  }

  /** Hands everything on now: nothing will come any more. */
  flush(): void {
    clearImmediate(this.#turn);
    this.#turn = undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const frame of waiting) {
      if (!this.#isClosed()) this.#receive(frame);
    }
  }

  close(): void {
    this.#closed = true;
    this.#waiting = [];
    clearImmediate(this.#turn);
    this.#turn = undefined;
  }

  #isClosed(): boolean {
    return this.#closed;
  }

  readonly #onTurn = (): void => {
    this.#turn = undefined;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const frame of waiting) this.accept(frame);
    if (this.#waiting.length === 0 && waiting.length > 0 && !this.#closed) this.#onIdle();
  };
}
