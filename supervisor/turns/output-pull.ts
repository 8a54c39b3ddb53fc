import type { TurnProgress } from '../../sidecar/wire.ts';
import { failpoint } from '../base/failpoints.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';
import type { ChangeNotifier } from '../base/change-notifier.ts';

const READ_BYTES = 1024 * 1024;
const TAIL_BYTES = 4096;
/** A waiting question is answered this long after its time at the latest, or is asked anew. */
const ANSWER_MS = 5000;

export interface OutputPullOptions {
  readonly turnId: string;
  readonly output: TurnOutput;
  readonly changes: ChangeNotifier;
  /** Woken when something about the turn was decided here. */
  readonly wakeKey: string;
  /** Ends every wait; nothing is stored any more. */
  readonly shutdown: AbortSignal;
  /** Bytes of each stream that are stored. */
  readonly stored: { readonly stdout: number; readonly stderr: number };
}

/** Brings a turn's output from the run directory into the history, from where it was left. */
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

  /** How far the turn is; waits up to `waitMs` for more than is known. */
  async progress(client: SidecarClient, waitMs: number): Promise<TurnProgress> {
    const { turnId, changes, wakeKey, shutdown } = this.#options;
    // Output that is not stored any more must not wake us either.
    const end = Number.MAX_SAFE_INTEGER;
    const known = this.isOverLimit ? { stdout: end, stderr: end } : this.#stored;
    const asked = client.turnProgress({ turnId, ...known, waitMs });
    if (waitMs === 0) return asked;
    const woken = changes.wait(wakeKey, waitMs + ANSWER_MS, shutdown);
    const first = await Promise.race([asked, woken.then(() => null)]);
    if (first !== null) {
      changes.notify(wakeKey);
      return first;
    }
    asked.catch(() => undefined); // its answer is not waited for any more
    return client.turnProgress({ turnId, ...this.#stored, waitMs: 0 });
  }

  /** Stores what there is, up to the limit: a sparse file of the agent can claim to have any size. False when it is reached. */
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

  /** The end of what it wrote to its standard error. */
  readErrorTail(): string {
    const { output, turnId } = this.#options;
    const end = this.#stored.stderr;
    return output.read(turnId, 'stderr', Math.max(0, end - TAIL_BYTES), TAIL_BYTES).toString('utf8');
  }

  /** A handler's answer, as it was written. */
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
