import { z } from 'zod';
import { ContentSchema } from '../../protocol/contents.ts';
import type { SessionEvent } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { HandoffIdSchema, ManifestIdSchema } from '../../protocol/handoff.ts';
import type { Params, Result } from '../../protocol/methods.ts';
import { type ObjectReader, parseHash } from '../../snapshot-format/objects.ts';
import type { Ids } from '../base/ids.ts';
import { firstLine, PREVIEW_BYTES, PREVIEW_CHARACTERS } from '../base/single-line.ts';
import type { Contents } from '../history/contents.ts';
import type { EventLog } from '../history/event-log.ts';
import type { DeliverableReview, ReviewDelivery } from '../reviews/review-delivery.ts';
import type { BaseTrees } from '../snapshots/base-trees.ts';
import type { SnapshotCreation } from '../snapshots/snapshot-creation.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import type { LineageStores } from '../snapshots/store/lineage-stores.ts';
import type { Database } from '../store/database.ts';
import type { Operations } from '../store/operations.ts';
import type { SessionRow } from '../store/sessions.ts';
import { entryOf, readContents, RecentPages, type TreePair } from './changed-files.ts';

const IdsSchema = z.object({ handoff: HandoffIdSchema, manifest: ManifestIdSchema });
const RecordedSchema = z.object({ handoffId: HandoffIdSchema });
/** Data of `turn.queued` and `turn.edited`. */
const PromptSchema = z.object({
  turnId: z.string(),
  content: ContentSchema.nullable().default(null),
  /** In events of earlier versions. */
  preview: z.string().default(''),
});
type Prompt = z.output<typeof PromptSchema>;
/** How many prompts a client gets for its commit message. */
const MAX_PROMPTS = 20;
const PAGE_EVENTS = 1000;

/** The part of `handoff/begin` that says what is compared. */
type BegunTrees = Pick<Result<'handoff/begin'>, 'base' | 'target' | 'review'>;

export interface HandoffServiceOptions {
  readonly database: Database;
  readonly operations: Operations;
  readonly events: EventLog;
  readonly contents: Pick<Contents, 'readStart'>;
  readonly stores: LineageStores;
  readonly baseTrees: Pick<BaseTrees, 'find'>;
  readonly snapshotService: Pick<SnapshotService, 'findSession'>;
  readonly snapshotCreation: Pick<SnapshotCreation, 'create'>;
  readonly reviewDelivery: Pick<ReviewDelivery, 'find' | 'exclusively' | 'end' | 'reopen'>;
  readonly ids: Ids;
  /** How many turns, execs and terminals run in a session. */
  readonly running: (sessionId: string) => number;
  /**
   * Called before a handoff is recorded as made. What it resolves with is called in the transaction that records it.
   * Never rejects: what was handed off is recorded in any case.
   */
  readonly beforeMade: (session: SessionRow, made: Params<'handoff/record'>) => Promise<() => void>;
}

/** What clients ask to hand changes over. The client applies them: the repository is on the person's machine. */
export class HandoffService {
  readonly #options: HandoffServiceOptions;
  readonly #pages = new RecentPages();

  constructor(options: HandoffServiceOptions) {
    this.#options = options;
  }

  async begin(
    { session: reference, unreviewed = false, opId }: Params<'handoff/begin'>,
    signal: AbortSignal,
  ): Promise<Result<'handoff/begin'>> {
    const { snapshotService, reviewDelivery, operations, ids, running } = this.#options;
    const session = snapshotService.findSession(reference);
    const review = unreviewed ? null : await reviewDelivery.find(session, signal);
    const trees =
      review === null ? await this.#everything(session, opId, signal) : this.#accepted(session, review);
    const { result } = operations.runOnce(opId, 'handoff.begin', () => ({
      handoff: ids.next('hand'),
      manifest: ids.next('man'),
    }));
    return {
      ...IdsSchema.parse(result),
      sessionId: session.id,
      sessionName: session.name,
      profile: session.profile,
      ...trees,
      running: running(session.id),
      prompts: this.#prompts(session.id),
    };
  }

  /** What a person accepted. It is stored already, so that the workspace is not looked at. */
  #accepted(session: SessionRow, { id, base, target, accepted, counts }: DeliverableReview): BegunTrees {
    const { origin: deployed = null, folder = '' } = this.#options.baseTrees.find(session) ?? {};
    // What was compared with a commit is a change of that commit.
    const head = base.spec.startsWith('head:') ? base.spec.slice('head:'.length) : null;
    const origin = deployed === null || head === null ? deployed : { ...deployed, head };
    return {
      base: { kind: 'review', root: base.root, origin, folder },
      target: { kind: 'review', snapshot: target.snapshotId, root: accepted.root, missing: 0 },
      review: { id, notAccepted: counts.toReview + counts.partial },
    };
  }

  /** The workspace as it is now. */
  async #everything(session: SessionRow, opId: string | undefined, signal: AbortSignal): Promise<BegunTrees> {
    const { snapshotCreation, baseTrees } = this.#options;
    // Before the base is looked up: the first use of a session seeds its workspace.
    const created = await snapshotCreation.create(session.id, {
      reason: 'before-handoff',
      signal,
      opId: opId === undefined ? undefined : `${opId}.snapshot`,
    });
    const base = baseTrees.find(session);
    if (created === null || base === null) {
      throw new HoldfastError('invalid_state', `Nothing can be handed off from ${session.name}`, {
        why: 'the first content of its workspace is unknown',
        next: 'use `holdfast snapshot diff` and `holdfast workspace cat`',
      });
    }
    const { root, origin, folder, isExact } = base;
    const { id: snapshot, root: target, missing } = created.row;
    return {
      base: { kind: isExact ? 'seeded' : 'snapshot', root, origin, folder },
      target: { kind: 'snapshot', snapshot, root: target, missing },
      review: null,
    };
  }

  async changes(
    { session, base, target, cursor }: Params<'handoff/changes'>,
    signal: AbortSignal,
  ): Promise<Result<'handoff/changes'>> {
    return await this.#withTrees(session, base, target, async (store, trees) => {
      const { files, nextCursor } = await this.#pages.page(store, trees, cursor, signal);
      return { entries: files.map(entryOf), nextCursor };
    });
  }

  /** Contents of the page with this cursor. */
  async contents(
    { session, base, target, cursor, ...wanted }: Params<'handoff/contents'>,
    signal: AbortSignal,
  ): Promise<{ readonly sizes: number[]; readonly bytes: Buffer }> {
    return await this.#withTrees(session, base, target, async (store, trees) => {
      const page = await this.#pages.page(store, trees, cursor, signal);
      return await readContents(store, page, wanted);
    });
  }

  /** Appends the event of a step, once, and ends or opens the review that it delivers, in the same transaction. */
  async record(request: Params<'handoff/record'>): Promise<Result<'handoff/record'>> {
    const { database, events, snapshotService, reviewDelivery, beforeMade } = this.#options;
    const { session: reference, handoff: handoffId, step, manifest: manifestId, ...what } = request;
    const session = snapshotService.findSession(reference);
    const { review, base, target } = what;
    const type = `handoff.${step}` as const;
    this.#pages.clear();
    if (this.#isRecorded(session.id, type, handoffId)) return { recorded: false };
    const keepManifest = step === 'made' ? await beforeMade(session, request) : () => undefined;
    const append = (): Result<'handoff/record'> => {
      if (this.#isRecorded(session.id, type, handoffId)) return { recorded: false };
      events.append(session.id, [{ type, data: { handoffId, manifestId, ...what } }]);
      keepManifest();
      if (review !== null && step === 'made') reviewDelivery.end(session, { review, base, target });
      if (review !== null && step === 'undone') reviewDelivery.reopen(session, { review, base, target });
      return { recorded: true };
    };
    return await reviewDelivery.exclusively(session, () => database.transaction(append));
  }

  async #withTrees<T>(
    reference: string,
    base: string,
    target: string,
    act: (store: ObjectReader, trees: TreePair) => Promise<T>,
  ): Promise<T> {
    const { stores, snapshotService } = this.#options;
    const { lineage } = snapshotService.findSession(reference);
    return await stores.use(lineage, async (store) => {
      const trees = { before: parseHash(base), after: parseHash(target) };
      if (store.find(trees.before) === null || store.find(trees.after) === null) {
        throw new HoldfastError('not_found', 'The trees of this handoff are not stored', {
          why: 'a snapshot was deleted, or they are of another session',
          next: 'begin the handoff again',
        });
      }
      return await act(store, trees);
    });
  }

  #isRecorded(sessionId: string, type: string, handoffId: string): boolean {
    const { events } = this.#options;
    for (let after = 0; ;) {
      const page = events.read(sessionId, { type, after, limit: PAGE_EVENTS });
      if (page.some(({ data }) => RecordedSchema.safeParse(data).data?.handoffId === handoffId)) return true;
      const last = page.at(-1);
      if (last === undefined || page.length < PAGE_EVENTS) return false;
      after = last.seq;
    }
  }

  /** Beginnings of the newest prompts as they were last edited, the oldest of them first. */
  #prompts(sessionId: string): string[] {
    const { events } = this.#options;
    const promptsIn = (page: readonly SessionEvent[]) =>
      page.flatMap(({ data }) => PromptSchema.safeParse(data).data ?? []);
    const queued = events.newest(sessionId, 'turn.queued', MAX_PROMPTS);
    const prompts = new Map(promptsIn(queued).map((prompt) => [prompt.turnId, prompt]));
    // A prompt is edited after it was queued.
    for (let after = queued[0]?.seq ?? 0; ;) {
      const page = events.read(sessionId, { type: 'turn.edited', after, limit: PAGE_EVENTS });
      for (const prompt of promptsIn(page))
        if (prompts.has(prompt.turnId)) prompts.set(prompt.turnId, prompt);
      const last = page.at(-1);
      if (last === undefined || page.length < PAGE_EVENTS)
        return [...prompts.values()].map((prompt) => this.#beginningOf(sessionId, prompt));
      after = last.seq;
    }
  }

  #beginningOf(sessionId: string, { content, preview }: Prompt): string {
    const start =
      content === null ? null : this.#options.contents.readStart(sessionId, content.sha256, PREVIEW_BYTES);
    return start === null ? preview.slice(0, 2000) : firstLine(start, PREVIEW_CHARACTERS);
  }
}
