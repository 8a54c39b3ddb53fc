import { HoldfastError } from '../../protocol/errors.ts';
import { hasReader, sendLine } from '../files/fifo.ts';
import type { TurnFiles } from '../turns/turn-files.ts';
import { PROCESS_LIMITS } from '../wire.ts';
import type { ProcessNote } from './process-note.ts';

const WAKE = 'wake';
/** A longer line is copied by a program: the shell reads byte by byte. */
const SHORT_LINE_BYTES = 4096;

/** Whether the shell can pass it on itself. */
function isShortLine(bytes: Buffer): boolean {
  return bytes.length <= SHORT_LINE_BYTES && bytes.indexOf(10) === bytes.length - 1 && !bytes.includes(0);
}

function fileOf(offset: number): string {
  return `in-${offset}`;
}

/**
 * The input of one process. Each write is a file of its own in the run directory; the feeder beside the program copies
 * it into the program's input and empties it. The feeder lives in the agent's container, so the death of the sidecar
 * leaves nothing undecided. A write is made in this order:
 *
 *   1. the file          killed behind it: the feeder does not know the file, and the next write replaces it
 *   2. the note          killed behind it: the next sidecar sends the request
 *   3. the request       sent twice: the feeder finds an empty file
 */
export class ProcessInput {
  readonly #files: TurnFiles;
  readonly #note: ProcessNote;
  /** Offsets whose request this sidecar has sent. */
  readonly #requested = new Set<number>();
  /** Offsets of short lines whose request this sidecar has not sent. */
  readonly #lines = new Set<number>();
  #isCloseSent = false;
  #isFeederGone = false;

  constructor(files: TurnFiles, note: ProcessNote) {
    this.#files = files;
    this.#note = note;
  }

  get accepted(): number {
    return this.#note.value.accepted;
  }

  /** See `process/write`. Errors: `invalid_params`, `invalid_state`, `overloaded`, `no_space`, `sandbox_lost`. */
  write(offset: number, bytes: Buffer): { accepted: number; undecided: boolean } {
    const { accepted, isClosed, waiting } = this.#note.value;
    if (offset > accepted) {
      throw new HoldfastError('invalid_params', 'The input has a gap', {
        why: `the process has accepted ${accepted} bytes, not ${offset}`,
      });
    }
    const rest = bytes.subarray(accepted - offset);
    if (rest.length === 0 || this.#isFeederGone) return { accepted, undecided: this.#isFeederGone };
    if (isClosed) throw new HoldfastError('invalid_state', 'The input of the process is closed');
    const waitingBytes = waiting.reduce((sum, one) => sum + one.bytes, 0);
    if (
      waitingBytes + rest.length > PROCESS_LIMITS.waitingInput ||
      waiting.length >= PROCESS_LIMITS.waitingWrites
    ) {
      throw new HoldfastError('overloaded', 'The process cannot take more input', {
        why: `${waitingBytes} bytes in ${waiting.length} pieces already wait for it`,
        next: 'wait until its program has read them',
      });
    }
    this.#files.replace(fileOf(accepted), rest);
    if (isShortLine(rest)) this.#lines.add(accepted);
    this.#note.change({
      accepted: accepted + rest.length,
      waiting: [...waiting, { at: accepted, bytes: rest.length }],
    });
    this.#send();
    return { accepted: this.accepted, undecided: this.#isFeederGone };
  }

  close(): void {
    if (!this.#note.value.isClosed) this.#note.change({ isClosed: true });
    this.#send();
  }

  /** Notes what the program has got, and sends the requests that were not sent yet, as far as they can be sent. */
  update(): void {
    const { waiting } = this.#note.value;
    const firstLeft = waiting.findIndex(({ at }) => !this.#files.isEmptied(fileOf(at)));
    const fed = firstLeft === -1 ? waiting : waiting.slice(0, firstLeft);
    if (fed.length > 0) {
      for (const { at } of fed) {
        this.#files.discard(fileOf(at));
        this.#requested.delete(at);
      }
      this.#note.change({ waiting: waiting.slice(fed.length) });
    }
    this.#send();
    if (!this.#isCloseSent && !hasReader(this.#files.directory, WAKE)) this.#isFeederGone = true;
  }

  #send(): void {
    const { waiting, isClosed } = this.#note.value;
    if (!this.#files.has('running')) return;
    for (const { at } of waiting) {
      if (this.#requested.has(at)) continue;
      if (!this.#request(`${this.#lines.has(at) ? 'line' : 'feed'} ${at}`)) return;
      this.#requested.add(at);
      this.#lines.delete(at);
    }
    if (isClosed && !this.#isCloseSent) this.#isCloseSent = this.#request('close');
  }

  #request(line: string): boolean {
    const result = sendLine(this.#files.directory, WAKE, line);
    if (result === 'nobody') this.#isFeederGone = true;
    return result === 'sent';
  }
}
