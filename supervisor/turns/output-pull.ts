import type { TurnProgress } from '../../sidecar/wire.ts';
import { failpoint } from '../base/failpoints.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { ChangeNotifier } from '../base/change-notifier.ts';

const READ_BYTES = 1024 * 1024;
const TAIL_BYTES = 4096;
/** A request that waits in the sidecar is answered this long after its time at the latest, or is sent again. */
const ANSWER_MS = 5000;

export interface OutputPullOptions {
  readonly turnId: string;
  readonly output: TurnOutput;
  readonly changes: ChangeNotifier;
  /** Key of `changes` that is notified when the supervisor decides something about the turn. */
  readonly wakeKey: string;
  /** Ends every wait; nothing is stored after it. */
  readonly shutdown: AbortSignal;
  /** Bytes of each stream that are stored. */
  readonly stored: { readonly stdout: number; readonly stderr: number };
}

/** Copies a turn's output from the run directory to the history, from the offsets that are stored. */
export class OutputPull {
  readonly #options: OutputPullOptions;
  readonly #stored: { stdout: number; stderr: number };
  /** Bytes of both streams together that a turn may write. */
  limit = Number.MAX_SAFE_INTEGER;

  constructor(options: OutputPullOptions) {
    this.#options = options;
    this.#stored = { ...options.stored };
  }

  get isOverLimit(): boolean {
    return this.#stored.stdout + this.#stored.stderr > this.limit;
  }

  /** The turn's progress. Waits up to `waitMs` for more output than is stored, or for the end. */
  async progress(client: SidecarClient, waitMs: number): Promise<TurnProgress> {
    const { turnId, changes, wakeKey, shutdown } = this.#options;
    // Output beyond the limit is not stored, and must not end the wait.
    const end = Number.MAX_SAFE_INTEGER;
    const offsets = this.isOverLimit ? { stdout: end, stderr: end } : this.#stored;
    const answer = client.turnProgress({ turnId, ...offsets, waitMs });
    if (waitMs === 0) return answer;
    const woken = changes.wait(wakeKey, waitMs + ANSWER_MS, shutdown);
    const first = await Promise.race([answer, woken.then(() => null)]);
    if (first !== null) {
      changes.notify(wakeKey);
      return first;
    }
    answer.catch(() => undefined); // nobody waits for this answer now
    return client.turnProgress({ turnId, ...this.#stored, waitMs: 0 });
  }

  /** Stores the output up to the limit, because a sparse file of the agent can have any size. False when it reaches the limit. */
  async pullOutput(client: SidecarClient, { stdout, stderr }: TurnProgress): Promise<boolean> {
    return (await this.#pull(client, 'stdout', stdout)) && (await this.#pull(client, 'stderr', stderr));
  }

  async #pull(client: SidecarClient, stream: 'stdout' | 'stderr', total: number): Promise<boolean> {
    const { turnId, output, changes, shutdown } = this.#options;
    while (this.#stored[stream] < total && !shutdown.aborted) {
      if (this.isOverLimit) return false;
      const offset = this.#stored[stream];
      const bytes = await client.readTurn({ turnId, stream, offset, limit: READ_BYTES });
      if (bytes.byteLength === 0) break;
      await failpoint('turn.during-output');
      output.store(turnId, stream, offset, bytes);
      this.#stored[stream] = offset + bytes.byteLength;
      changes.notify(turnId);
    }
    return true;
  }

  /** The end of its standard error. */
  readErrorTail(): string {
    const { output, turnId } = this.#options;
    const end = this.#stored.stderr;
    return output.read(turnId, 'stderr', Math.max(0, end - TAIL_BYTES), TAIL_BYTES).toString('utf8');
  }

  /** The result of a handler, as the worker wrote it. */
  async readResult(client: SidecarClient, total: number): Promise<Buffer> {
    const { turnId } = this.#options;
    const parts: Buffer[] = [];
    let offset = 0;
    while (offset < total) {
      const part = await client.readTurn({ turnId, stream: 'result', offset, limit: READ_BYTES });
      if (part.byteLength === 0) break;
      parts.push(part);
      offset += part.byteLength;
    }
    return Buffer.concat(parts);
  }
}
