import type { Duplex } from 'node:stream';
import { AGENT_TOOL_LIMITS } from '../../protocol/agent-tools.ts';

const LINE_FEED = 0x0a;
/** How long a process may take to send its line, and to read the answer. */
const TRANSFER_MS = 10_000;
/** How long an answer may take: the longest tool waits for a person. */
const ANSWER_MS = AGENT_TOOL_LIMITS.answerWaitMs + 60_000;

/** Answers one message. Null: there is nothing to say. The signal aborts when the process has gone. Never rejects. */
export type AnswerMessage = (message: Buffer, signal: AbortSignal) => Promise<string | null>;

/**
 * One connection of `sidecar/guest/tools.sh`: a line comes in, and `+` with the answer goes out. A process that sends too
 * much, too slowly or nothing is cut off, and so is one that does not read.
 */
export class LineCall {
  readonly #stream: Duplex;
  readonly #answer: AnswerMessage;
  readonly #gone = new AbortController();
  readonly #parts: Buffer[] = [];
  #bytes = 0;
  #late: NodeJS.Timeout;

  constructor(stream: Duplex, answer: AnswerMessage) {
    this.#stream = stream;
    this.#answer = answer;
    this.#late = setTimeout(() => stream.destroy(), TRANSFER_MS);
    stream.on('error', () => stream.destroy());
    stream.once('close', () => {
      clearTimeout(this.#late);
      this.#gone.abort();
    });
    stream.on('data', this.#onBytes);
    stream.once('end', () => {
      if (this.#parts.length > 0 || this.#bytes === 0) stream.destroy();
    });
  }

  readonly #onBytes = (bytes: Buffer): void => {
    const end = bytes.indexOf(LINE_FEED);
    const part = end === -1 ? bytes : bytes.subarray(0, end);
    this.#bytes += part.length;
    if (this.#bytes > AGENT_TOOL_LIMITS.messageBytes) {
      this.#finish(TOO_LONG);
      return;
    }
    this.#parts.push(Buffer.from(part));
    if (end === -1) return;
    const message = Buffer.concat(this.#parts.splice(0));
    // One message is all: what follows is dropped.
    this.#stream.off('data', this.#onBytes).resume();
    clearTimeout(this.#late);
    this.#late = setTimeout(() => this.#stream.destroy(), ANSWER_MS);
    void this.#answer(message, this.#gone.signal).then((answer) => this.#finish(answer));
  };

  #finish(answer: string | null): void {
    this.#stream.off('data', this.#onBytes).resume();
    this.#parts.length = 0;
    if (this.#stream.destroyed) return;
    clearTimeout(this.#late);
    this.#late = setTimeout(() => this.#stream.destroy(), TRANSFER_MS);
    this.#stream.end(`+${answer ?? ''}\n`);
  }
}

const TOO_LONG = JSON.stringify({
  jsonrpc: '2.0',
  id: null,
  error: {
    code: -32_600,
    message: `a message has at most ${AGENT_TOOL_LIMITS.messageBytes} bytes`,
  },
});
