import { HoldfastError } from '../../protocol/errors.ts';
import type { EventEntry } from '../../protocol/events.ts';
import { type SessionEvent, ENDED_TURN_STATUSES } from '../../protocol/entities.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Artifacts } from '../history/artifacts.ts';
import type { Contents } from '../history/contents.ts';
import type { EventLog } from '../history/event-log.ts';
import { newestImport } from '../history/newest-import.ts';
import { replay } from '../history/projection.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import type { Ids } from '../base/ids.ts';
import { asEvent, contentsOf, copyEvents, firstPrompt } from './copied-events.ts';
import { beganWith, type SessionCreation } from './session-creation.ts';
import type { Database } from '../store/database.ts';
import type { EgressRules } from '../store/egress-rules.ts';
import type { Operations } from '../store/operations.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import type { TurnPaths } from '../store/turn-paths.ts';
import type { TurnRow, Turns } from '../store/turns.ts';
import type { Hydration } from '../snapshots/hydration.ts';
import type { RestoreIntents } from '../snapshots/restore-intents.ts';

export interface ForksOptions {
  readonly database: Database;
  readonly sessions: Sessions;
  readonly snapshots: Pick<Snapshots, 'getOrThrow'>;
  readonly turns: Turns;
  readonly turnPaths: Pick<TurnPaths, 'copy'>;
  readonly profiles: Profiles;
  readonly operations: Operations;
  readonly egressRules: Pick<EgressRules, 'copyDenials'>;
  readonly events: EventLog;
  readonly output: TurnOutput;
  readonly artifacts: Artifacts;
  readonly contents: Contents;
  readonly creation: SessionCreation;
  readonly restoreIntents: Pick<RestoreIntents, 'recordHydration'>;
  readonly ids: Ids;
  readonly hydration: Pick<Hydration, 'start'>;
}

/** A turn of the source session, and its id in the fork. */
interface CopiedTurn {
  readonly turn: TurnRow;
  readonly id: string;
}

/**
 * Creates sessions from snapshots of other sessions. One transaction writes the row, the history and the intent to
 * hydrate the workspace, so a fork exists completely or not at all. Its files follow in the background. The source
 * session is not touched.
 */
export class Forks {
  readonly #options: ForksOptions;

  constructor(options: ForksOptions) {
    this.#options = options;
  }

  /** Errors: `not_found` when the profile is no longer deployed, `already_exists` for the name. */
  async fork(snapshot: SnapshotRow, name: string | undefined, opId?: string): Promise<SessionRow> {
    const { operations, sessions } = this.#options;
    const earlier = operations.findResult(opId, 'snapshot.fork');
    const sessionId =
      earlier === null ? await this.#create(snapshot, name, opId) : (earlier.result as { id: string }).id;
    await failpoint('fork.after-row');
    const row = sessions.find(sessionId);
    this.#options.hydration.start(sessionId);
    return row;
  }

  async #create(snapshot: SnapshotRow, name: string | undefined, opId: string | undefined): Promise<string> {
    const { database, sessions, snapshots, profiles, operations, events, creation, restoreIntents } =
      this.#options;
    const { turns, turnPaths, output, contents, egressRules, ids } = this.#options;
    const source = sessions.get(snapshot.sessionId);
    if (source === null) throw new HoldfastError('not_found', `There is no session ${snapshot.sessionId}`);
    const profile = profiles.getOrThrow(source.profile);
    const id = ids.next('ses');
    const { history, start } = this.#history(snapshot);
    const copied = this.#endedTurns(history);
    const turnIds = new Map([...copied].map(([from, to]) => [from, to.id]));
    const copiedEvents = copyEvents(history, turnIds);
    const contentIds = contentsOf(copiedEvents.map(({ entry }) => entry));
    await this.#copyFiles(source.id, id, copied, contentIds);
    const { result } = operations.runOnce(opId, 'snapshot.fork', () => {
      database.transaction(() => {
        // The snapshot may have been deleted during the copy. From here on the intent protects its objects from
        // collection.
        snapshots.getOrThrow(snapshot.id);
        if (events.start(source.id).seq !== start) {
          throw new HoldfastError('conflict', 'The session was not created', {
            why: 'events of the snapshot’s session were removed meanwhile',
            next: 'try again',
          });
        }
        const row: SessionRow = {
          ...creation.row(profile, { name: name ?? id, throwaway: false }),
          id,
          ...beganWith(snapshot, 'fork'),
        };
        const entries = [
          ...copiedEvents.map(({ entry }) => entry),
          ...this.#laterImport(snapshot),
          forkedEvent(row, snapshot),
        ];
        const state = replay(entries.map((entry, at) => asEvent(row.id, at + 1, entry)));
        const about = firstPrompt(entries, (...of) => contents.readStart(source.id, ...of));
        sessions.insert({ ...row, about, model: state?.model ?? null });
        contents.copyRows(source.id, row.id, contentIds);
        events.append(row.id, entries);
        const seqs = new Map(copiedEvents.map(({ seq }, at) => [seq, at + 1]));
        for (const { turn, id } of copied.values()) {
          const changes = turn.changes?.state === 'pending' ? null : turn.changes;
          turns.insert({ ...turn, changes, id, sessionId: row.id });
          turnPaths.copy(turn.id, id);
          output.copy(turn.id, id, (seq) => seqs.get(seq));
        }
        restoreIntents.recordHydration(row.id, snapshot);
        egressRules.copyDenials(source.id, row.id);
      });
      return { id };
    });
    return result.id;
  }

  /** The events of the source session up to the snapshot, and where it was cut. A cut is said even if it came later. */
  #history({ sessionId, eventSeq }: SnapshotRow): { history: SessionEvent[]; start: number } {
    const { events } = this.#options;
    const start = events.start(sessionId).seq;
    const history: SessionEvent[] = [];
    for (;;) {
      const page = events.read(sessionId, { after: history.at(-1)?.seq ?? 0 });
      const wanted = page.filter(({ seq }) => seq <= eventSeq);
      history.push(...wanted);
      if (page.length === 0 || wanted.length < page.length) break;
    }
    const later = events.newest(sessionId, 'history.cut', 1).filter(({ seq }) => seq > eventSeq);
    return { history: [...history, ...later], start };
  }

  /** A snapshot that came in a bundle is older than the import. Its fork has to say too that another home wrote that history. */
  #laterImport({ sessionId, eventSeq }: SnapshotRow): EventEntry[] {
    const imported = newestImport(this.#options.events, sessionId);
    return imported === null || imported.seq <= eventSeq ? [] : [imported.entry];
  }

  /** The turns that had ended by then, with their new ids. Unfinished turns are not copied. */
  #endedTurns(history: readonly SessionEvent[]): Map<string, CopiedTurn> {
    const { turns, ids } = this.#options;
    const copied = new Map<string, CopiedTurn>();
    for (const { type, data } of history) {
      const { turnId } = data;
      if (type !== 'turn.ended' || typeof turnId !== 'string') continue;
      const turn = turns.get(turnId);
      if (turn !== null && ENDED_TURN_STATUSES.has(turn.status))
        copied.set(turnId, { turn, id: ids.next('turn') });
    }
    return copied;
  }

  /** If the supervisor is killed meanwhile, the copies belong to no session and are garbage-collected. */
  async #copyFiles(
    from: string,
    to: string,
    copied: ReadonlyMap<string, CopiedTurn>,
    contentIds: readonly string[],
  ): Promise<void> {
    const { artifacts, contents, output } = this.#options;
    await contents.copyFiles(from, to, contentIds);
    for (const { turn } of copied.values()) {
      for (const { artifact, bytes } of output.oldFiles(turn.id))
        await artifacts.copy({ sessionId: from, name: artifact }, { sessionId: to, name: artifact }, bytes);
    }
  }
}

function forkedEvent(row: SessionRow, { sessionId, id, eventSeq }: SnapshotRow): EventEntry {
  const { name, profile, persistent, backing, uid, gid } = row;
  return {
    type: 'session.forked',
    data: { from: sessionId, snapshotId: id, eventSeq, name, profile, persistent, backing, uid, gid },
  };
}
