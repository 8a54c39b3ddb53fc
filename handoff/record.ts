import { HoldfastError } from '../protocol/errors.ts';
import type { HandoffTarget } from '../protocol/handoff.ts';
import type { Params } from '../protocol/methods.ts';
import type { RawPath } from '../project/raw-path.ts';
import type { HandoffConnection } from './changes.ts';
import { isBeingMade, type Journal, Journals } from './journal.ts';
import type { HandoffPlan } from './plan.ts';
import type { Repository } from './repository.ts';

type Record = Params<'handoff/record'>;
/** What git calls what was made. */
export type Made = Partial<Pick<Record, 'branch' | 'commit' | 'tree'>>;

/** What the supervisor and the journal record of one handoff. */
export class HandoffRecord {
  readonly #connection: HandoffConnection;
  readonly #plan: HandoffPlan;
  readonly #to: HandoffTarget;
  readonly #now: () => number;

  /** `now`: ms since 1970. */
  constructor(
    connection: HandoffConnection,
    plan: HandoffPlan,
    { to, now }: { readonly to: HandoffTarget; readonly now: () => number },
  ) {
    this.#connection = connection;
    this.#plan = plan;
    this.#to = to;
    this.#now = now;
  }

  /** The first note of a handoff that makes this. */
  journal(made: Made) {
    const { begun } = this.#plan;
    const { handoff, manifest, sessionId: session } = begun;
    const { session: _session, handoff: _handoff, step: _step, ...record } = this.#recordOf('made', made);
    const common = {
      version: 1 as const,
      handoff,
      manifest,
      session,
      at: this.#now(),
      pid: process.pid,
    };
    return { ...common, state: 'making' as const, recorded: false, record };
  }

  /**
   * The review that ends with this handoff, if it brings all that is accepted into the repository. Otherwise the review goes
   * on, so that the rest can follow.
   */
  endedReview(): string | null {
    const { begun, quarantined, refused, ignored, notChosen, prefix } = this.#plan;
    const to = this.#to;
    // Git's own folder never is in the repository.
    const isWork = (path: RawPath): boolean => !/^\.git(?:\/|$)/.test(path.slice(prefix.length));
    const staysBehind = quarantined.length + refused.length + notChosen + begun.target.missing;
    const isWhole = staysBehind === 0 && !ignored.some(isWork);
    return isWhole && to !== 'patch' && to !== 'dir' ? (begun.review?.id ?? null) : null;
  }

  #recordOf(step: Record['step'], made: Made): Record {
    const { begun, trees, travels, released, quarantined } = this.#plan;
    return {
      session: begun.sessionId,
      handoff: begun.handoff,
      step,
      manifest: begun.manifest,
      base: trees.base,
      target: trees.target,
      snapshot: begun.target.snapshot,
      to: this.#to,
      commit: made.commit ?? null,
      tree: made.tree ?? null,
      branch: made.branch ?? null,
      files: travels.length,
      released: released.length,
      quarantined: quarantined.length,
      review: this.endedReview(),
    };
  }

  /** That a person approved it: before the first write. */
  async approved(made: Made = {}): Promise<void> {
    await this.#connection.callWithBytes('handoff/record', this.#recordOf('approved', made));
  }

  /**
   * That it was made. It exists already: whatever fails now, the handoff was made. Resolves with why it could not be recorded; its note,
   * which lacks `note` then, lets the next client do that.
   */
  async made(made: Made, note: (() => Promise<void>) | null): Promise<string | null> {
    try {
      await this.#connection.callWithBytes('handoff/record', this.#recordOf('made', made));
    } catch (error) {
      return HoldfastError.from(error).sentence;
    }
    // Without it the next client records the handoff again, which changes nothing.
    await note?.().catch(() => undefined);
    return null;
  }
}

/** Tells the supervisor that a handoff was undone. */
export async function recordUndone(connection: HandoffConnection, journal: Journal): Promise<void> {
  await recordStep(connection, journal, 'undone');
}

/**
 * Tells the supervisor of handoffs that were made by a client that was killed before it could. Returns those that it knows now; what
 * another supervisor made waits for that one.
 */
export async function recordRecovered(
  connection: HandoffConnection,
  repository: Repository,
): Promise<Journal[]> {
  const journals = new Journals(repository.commonDirectory);
  const recorded: Journal[] = [];
  for (const journal of (await journals.list()).journals) {
    if (journal.recorded || journal.state !== 'made' || isBeingMade(journal)) continue;
    try {
      await recordStep(connection, journal, 'made');
    } catch (error) {
      if (error instanceof HoldfastError && error.code === 'not_found') continue;
      throw error;
    }
    await journals.write({ ...journal, recorded: true });
    recorded.push(journal);
  }
  return recorded;
}

async function recordStep(
  connection: HandoffConnection,
  { session, handoff, record }: Journal,
  step: Record['step'],
): Promise<void> {
  // Journals of earlier versions name no review.
  const params = { review: null, ...record, session, handoff, step } as unknown as Record;
  await connection.callWithBytes('handoff/record', params);
}
