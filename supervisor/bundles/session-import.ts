import type { Content } from '../../protocol/contents.ts';
import type { Checkpoint } from '../../protocol/history.ts';
import { contentsOf, type EventEntry } from '../../protocol/events.ts';
import { SessionNameSchema } from '../../protocol/entities.ts';
import type { Ids } from '../base/ids.ts';
import type { Contents } from '../history/contents.ts';
import type { EventLog } from '../history/event-log.ts';
import { replay } from '../history/projection.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import { asEvent, copyEvents, firstPrompt } from '../sessions/copied-events.ts';
import type { SessionCreation } from '../sessions/session-creation.ts';
import type { RestoreIntents } from '../snapshots/restore-intents.ts';
import type { Database } from '../store/database.ts';
import type { Profiles } from '../store/profiles.ts';
import type { ReviewCommentRows } from '../store/review-comments.ts';
import type { ReviewRows } from '../store/reviews.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import type { Turns } from '../store/turns.ts';
import type { WorkspaceBases } from '../store/workspace-bases.ts';
import { type BundleSession, type BundleSnapshot, refusedBundle } from './bundle-format.ts';
import type { ReadBundle } from './bundle-reader.ts';
import { endedTurns, turnRow } from './imported-turns.ts';

const PART_BYTES = 4 * 2 ** 20;

export interface SessionImportOptions {
  readonly database: Database;
  readonly sessions: Pick<Sessions, 'insert' | 'update'>;
  readonly snapshots: Pick<Snapshots, 'insert'>;
  readonly turns: Pick<Turns, 'insert'>;
  readonly profiles: Pick<Profiles, 'getOrThrow'>;
  readonly bases: Pick<WorkspaceBases, 'put'>;
  readonly reviewRows: Pick<ReviewRows, 'insert' | 'decide'>;
  readonly commentRows: Pick<ReviewCommentRows, 'insert'>;
  readonly events: Pick<EventLog, 'append'>;
  readonly contents: Pick<Contents, 'adopt' | 'read' | 'readStart'>;
  readonly output: Pick<TurnOutput, 'adopt'>;
  readonly creation: Pick<SessionCreation, 'row'>;
  readonly restoreIntents: Pick<RestoreIntents, 'recordHydration'>;
  readonly ids: Ids;
}

/** The session that a bundle becomes, and where its contents lie. */
export interface ImportTarget {
  readonly sessionId: string;
  readonly profile: string;
  readonly name: string | undefined;
  /** The file of the session that holds the contents. */
  readonly artifact: string;
  /** The key of this home signed the bundle. */
  readonly isOwn: boolean;
}

/** Makes a session of a bundle whose objects and contents are stored already. */
export class SessionImport {
  readonly #options: SessionImportOptions;

  constructor(options: SessionImportOptions) {
    this.#options = options;
  }

  /**
   * Writes all rows, as one transaction. Errors: `not_found` for the profile, `already_exists` for the name, `snapshot_damaged` for a
   * history that contradicts itself.
   */
  insert(bundle: ReadBundle, target: ImportTarget): { row: SessionRow; snapshot: SnapshotRow } {
    try {
      return this.#options.database.transaction(() => this.#insert(bundle, target));
    } catch (error) {
      // What the history of a bundle says was checked, but not that it makes sense.
      if (error instanceof RangeError || error instanceof TypeError)
        throw refusedBundle('its history makes no sense', error);
      throw error;
    }
  }

  #insert(bundle: ReadBundle, target: ImportTarget): { row: SessionRow; snapshot: SnapshotRow } {
    const { sessions, profiles, creation, events, contents, ids, restoreIntents } = this.#options;
    const { home, session, keyId } = bundle;
    const { sessionId } = target;
    const history = bundle.events.map((event) => ({ ...event, at: new Date(event.at).toISOString() }));
    const recorded = endedTurns(mapped(history, entryOf));
    const turnIds = new Map(recorded.map(({ id }) => [id, ids.next('turn')]));
    const others = new Map([
      ...session.snapshots.map(({ id }) => [id, ids.next('snp')] as const),
      ...session.reviews.map(({ id }) => [id, ids.next('rev')] as const),
    ]);
    const copied = copyEvents(history, turnIds).map(({ seq, entry }) => ({
      seq,
      entry: withNewIds(entry, others),
    }));
    if (copied[0]?.entry.type !== 'session.created') throw refusedBundle('its history has no beginning');

    const name = target.name ?? SessionNameSchema.safeParse(session.session.name).data;
    const created: SessionRow = {
      ...creation.row(profiles.getOrThrow(target.profile), { name, throwaway: false }),
      id: sessionId,
      lineage: sessionId,
      began: 'import',
    };
    const { tags, pinned, starred } = session.session;
    const row: SessionRow = { ...created, name: name ?? sessionId, tags, pinned, starred };
    const snapshots = session.snapshots.map((one) => this.#snapshotRow(one, row, others, copied));
    const main = snapshots.find(({ id }) => id === others.get(session.snapshot));
    if (main === undefined) throw refusedBundle('it has no snapshot');
    const { profile, persistent, backing, uid, gid } = row;
    const entries: EventEntry[] = [
      ...copied.map(({ entry }) => entry),
      {
        type: 'session.imported',
        data: {
          ...{ home, keyId, from: session.session.id, snapshotId: main.id },
          ...{ eventSeq: bundle.events.at(-1)?.seq ?? 0 },
          ...{ name: row.name, profile, persistent, backing, uid, gid },
          ...(bundle.checkpoint === null ? {} : { checkpoint: placeOf(bundle.checkpoint) }),
        },
      },
      { type: 'session.updated', data: { tags, pinned, starred } },
    ];
    const state = replay(mapped(entries, (entry, at) => asEvent(sessionId, at + 1, entry)));
    sessions.insert({ ...row, model: state?.model ?? null });
    for (const content of entries.flatMap(contentsOf)) this.#adoptContent(bundle, target, content);
    const about = firstPrompt(entries, (...of) => contents.readStart(sessionId, ...of));
    if (about !== null) sessions.update(sessionId, { about });
    events.append(sessionId, entries);
    const read = ({ sha256, bytes }: Content): Buffer =>
      contents.read(sessionId, sha256, 0, Math.min(bytes, PART_BYTES)).part;
    const projected = new Map(state?.turns.map((turn) => [turn.id, turn]));
    for (const turn of recorded) {
      const id = turnIds.get(turn.id) ?? '';
      const fields = projected.get(id);
      if (fields === undefined) throw refusedBundle('its history has a turn that never began');
      this.#options.turns.insert(turnRow(sessionId, turn, fields, read));
      this.#options.output.adopt(id, turn.pieces);
    }
    for (const snapshot of snapshots) this.#options.snapshots.insert(snapshot);
    // The accepted tree of one that has ended is what the next one compares with: another home does not choose it.
    const reviews = session.reviews.filter(({ endedAt }) => endedAt === null || target.isOwn);
    this.#insertReviews({ ...session, reviews }, row, others, turnIds);
    this.#insertBase(session, row);
    restoreIntents.recordHydration(sessionId, main);
    return { row, snapshot: main };
  }

  #adoptContent(bundle: ReadBundle, { sessionId, artifact }: ImportTarget, content: Content): void {
    const place = bundle.contents.get(content.sha256);
    if (place === undefined) throw refusedBundle('its history names a content that it does not hold');
    this.#options.contents.adopt(sessionId, content, artifact, place.start);
  }

  #snapshotRow(
    { eventSeq, id, ...snapshot }: BundleSnapshot,
    { id: sessionId, lineage }: SessionRow,
    others: ReadonlyMap<string, string>,
    copied: readonly { readonly seq: number }[],
  ): SnapshotRow {
    return {
      ...snapshot,
      ...{ id: others.get(id) ?? id, sessionId, lineage, pinned: false, base: null },
      ...{ changedFiles: 0, changedBytes: 0, newBytes: 0, scanMs: 0, frozenMs: 0 },
      eventSeq: copied.filter(({ seq }) => seq <= eventSeq).length,
    };
  }

  #insertReviews(
    { reviews, comments, snapshots }: BundleSession,
    { id: sessionId, lineage }: SessionRow,
    others: ReadonlyMap<string, string>,
    turnIds: ReadonlyMap<string, string>,
  ): void {
    const { reviewRows, commentRows, ids } = this.#options;
    if (reviews.filter(({ endedAt }) => endedAt === null).length > 1)
      throw refusedBundle('it has two open reviews');
    for (const { decisions, id, baseSnapshot, targetSnapshot, baseSpec, ...review } of reviews) {
      const reviewId = others.get(id) ?? ids.next('rev');
      const target = others.get(targetSnapshot);
      const { root } = snapshots.find(({ id: one }) => one === targetSnapshot) ?? {};
      if (target === undefined || root !== review.targetRoot)
        throw refusedBundle('its review is of a snapshot that it does not hold');
      reviewRows.insert({
        ...review,
        ...{ id: reviewId, sessionId, lineage, targetSnapshot: target },
        baseSnapshot: baseSnapshot === null ? null : (others.get(baseSnapshot) ?? null),
        baseSpec: newBase(baseSpec, others, turnIds),
        // It follows from the decisions, and is made of them when it is needed.
        acceptedRoot: review.endedAt === null ? null : review.acceptedRoot,
      });
      for (const { path, fileId, state } of decisions) reviewRows.decide(reviewId, path, fileId, state);
    }
    for (const { quote, turnId, ...comment } of comments) {
      const sentIn = turnId === null ? null : (turnIds.get(turnId) ?? null);
      commentRows.insert({
        ...comment,
        ...{
          id: ids.next('cmt'),
          sessionId,
          quote: Buffer.from(quote, 'base64'),
          batch: null,
          turnId: sentIn,
        },
        sentAt: sentIn === null ? null : comment.sentAt,
      });
    }
  }

  #insertBase({ base, madeAt }: BundleSession, { id, lineage, profile }: SessionRow): void {
    if (base === null) return;
    const { version } = this.#options.profiles.getOrThrow(profile);
    this.#options.bases.put({ ...base, sessionId: id, lineage, seededAt: madeAt, codeVersion: version });
  }
}

function placeOf({ seq, removed, head, madeAt }: Checkpoint) {
  return { seq, removed, head, madeAt };
}

/** One at a time: a history is large. */
function* mapped<T, U>(items: readonly T[], map: (item: T, at: number) => U): Generator<U> {
  for (const [at, item] of items.entries()) yield map(item, at);
}

function entryOf({ type, data, at }: { type: string; data: unknown; at: string }): EventEntry {
  return { type, data, at: Date.parse(at) } as EventEntry;
}

/** Snapshots and reviews that come along have new ids; others are unknown here. */
function withNewIds(entry: EventEntry, others: ReadonlyMap<string, string>): EventEntry {
  const data: Record<string, unknown> = { ...entry.data };
  for (const field of ['snapshotId', 'reviewId', 'undo']) {
    const id = data[field];
    if (typeof id === 'string') data[field] = others.get(id) ?? id;
  }
  return { ...entry, data } as EventEntry;
}

type BaseSpec = BundleSession['reviews'][number]['baseSpec'];

function newBase(
  spec: BaseSpec,
  others: ReadonlyMap<string, string>,
  turnIds: ReadonlyMap<string, string>,
): BaseSpec {
  const [kind, id = ''] = spec.split(':');
  if (kind === 'head') return spec;
  const found = kind === 'turn' ? turnIds.get(id) : kind === 'snapshot' ? others.get(id) : undefined;
  if (found === undefined) return kind === 'last' || kind === 'start' ? spec : 'start';
  return `${kind ?? ''}:${found}`;
}
