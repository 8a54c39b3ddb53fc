import { HoldfastError } from '../../protocol/errors.ts';
import type { EventEntry } from '../../protocol/events.ts';
import { type SessionEvent, ENDED_TURN_STATUSES } from '../../protocol/entities.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Artifacts } from '../history/artifacts.ts';
import type { EventLog } from '../history/event-log.ts';
import { replay } from '../history/projection.ts';
import type { TurnOutput } from '../history/turn-output.ts';
import type { Ids } from '../base/ids.ts';
import type { SessionCreation } from './session-creation.ts';
import type { Database } from '../store/database.ts';
import type { Operations } from '../store/operations.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import type { TurnRow, Turns } from '../store/turns.ts';
import type { Hydration } from '../snapshots/hydration.ts';
import type { Restores } from '../snapshots/restores.ts';

export interface ForksOptions {
  readonly database: Database;
  readonly sessions: Sessions;
  readonly snapshots: Pick<Snapshots, 'getOrThrow'>;
  readonly turns: Turns;
  readonly profiles: Profiles;
  readonly operations: Operations;
  readonly events: EventLog;
  readonly output: TurnOutput;
  readonly artifacts: Artifacts;
  readonly creation: SessionCreation;
  readonly restores: Restores;
  readonly ids: Ids;
  readonly hydration: Pick<Hydration, 'start'>;
}

/** A turn of the other session and what it is called here. */
interface CopiedTurn {
  readonly turn: TurnRow;
  readonly id: string;
}

/**
 * Makes sessions that begin where others were. Row, history and the intent to bring the files are one transaction: a fork is there with all of
 * it, or not at all. Its files are brought after that. What it was made from is not touched.
 */
export class Forks {
  readonly #options: ForksOptions;

  constructor(options: ForksOptions) {
    this.#options = options;
  }

  /** Errors: `not_found` where the profile is not deployed any more, `already_exists` for the name. */
  async fork(snapshot: SnapshotRow, name: string | undefined, opId?: string): Promise<SessionRow> {
    const { operations, sessions } = this.#options;
    const earlier = operations.findResult(opId, 'snapshot.fork');
    const sessionId =
      earlier === null ? await this.#make(snapshot, name, opId) : (earlier.result as { id: string }).id;
    await failpoint('fork.after-row');
    const row = sessions.find(sessionId);
    this.#options.hydration.start(sessionId);
    return row;
  }

  async #make(snapshot: SnapshotRow, name: string | undefined, opId: string | undefined): Promise<string> {
    const { database, sessions, snapshots, profiles, operations, events, creation, restores } = this.#options;
    const { turns, output, ids } = this.#options;
    const source = sessions.get(snapshot.sessionId);
    if (source === null) throw new HoldfastError('not_found', `There is no session ${snapshot.sessionId}`);
    const profile = profiles.getOrThrow(source.profile);
    const id = ids.next('ses');
    const told = this.#history(snapshot);
    const copied = this.#ended(told);
    await this.#copyFiles(source.id, id, copied);
    const { result } = operations.runOnce(opId, 'snapshot.fork', () => {
      database.transaction(() => {
        // Gone while files of the history were copied: from here on the intent holds what it needs.
        snapshots.getOrThrow(snapshot.id);
        const row: SessionRow = {
          ...creation.row(profile, { name: name ?? id, throwaway: false }),
          id,
          lineage: snapshot.lineage,
          origin: snapshot.id,
        };
        const entries = [...kept(told, copied).map(({ entry }) => entry), forkedEvent(row, snapshot)];
        const state = replay(entries.map((entry, at) => asEvent(row.id, at + 1, entry)));
        sessions.insert({ ...row, about: state?.about ?? null, model: state?.model ?? null });
        events.append(row.id, entries);
        const seqs = new Map(kept(told, copied).map(({ seq }, at) => [seq, at + 1]));
        for (const { turn, id } of copied.values()) {
          turns.insert({ ...turn, id, sessionId: row.id });
          output.copy(turn.id, id, (seq) => seqs.get(seq));
        }
        restores.recordHydrationIntent(row.id, snapshot);
      });
      return { id };
    });
    return result.id;
  }

  /** What had happened when the snapshot was taken. */
  #history({ sessionId, eventSeq }: SnapshotRow): SessionEvent[] {
    const { events } = this.#options;
    const told: SessionEvent[] = [];
    for (;;) {
      const page = events.read(sessionId, { after: told.at(-1)?.seq ?? 0 });
      const wanted = page.filter(({ seq }) => seq <= eventSeq);
      told.push(...wanted);
      if (page.length === 0 || wanted.length < page.length) return told;
    }
  }

  /** Turns that had ended by then, under their new ids. One that had not is none of the fork's. */
  #ended(told: readonly SessionEvent[]): Map<string, CopiedTurn> {
    const { turns, ids } = this.#options;
    const copied = new Map<string, CopiedTurn>();
    for (const { type, data } of told) {
      const { turnId } = data;
      if (type !== 'turn.ended' || typeof turnId !== 'string') continue;
      const turn = turns.get(turnId);
      if (turn !== null && ENDED_TURN_STATUSES.has(turn.status))
        copied.set(turnId, { turn, id: ids.next('turn') });
    }
    return copied;
  }

  /** Killed in between, what was copied belongs to no session, and is collected. */
  async #copyFiles(from: string, to: string, copied: ReadonlyMap<string, CopiedTurn>): Promise<void> {
    const { artifacts, output } = this.#options;
    for (const { turn, id } of copied.values()) {
      for (const { stream, artifact, bytes } of output.artifactFiles(turn.id))
        await artifacts.copy(
          { sessionId: from, name: artifact },
          { sessionId: to, name: `${id}.${stream}` },
          bytes,
        );
    }
  }
}

/** Events of the other session as they are told here, with the place that they had there. */
function kept(
  told: readonly SessionEvent[],
  copied: ReadonlyMap<string, CopiedTurn>,
): { readonly seq: number; readonly entry: EventEntry }[] {
  return told.flatMap(({ seq, type, data, at }) => {
    const { turnId } = data;
    const own = typeof turnId === 'string' ? copied.get(turnId)?.id : undefined;
    if (turnId !== undefined && own === undefined) return [];
    const changed: Record<string, unknown> = { ...data };
    if (own !== undefined) changed['turnId'] = own;
    const { stream, artifact } = data;
    if (own !== undefined && typeof artifact === 'string' && typeof stream === 'string')
      changed['artifact'] = `${own}.${stream}`;
    // It was parsed when it was written, and only ids are others.
    return [{ seq, entry: { type, data: changed, at: Date.parse(at) } as unknown as EventEntry }];
  });
}

function forkedEvent(row: SessionRow, { sessionId, id, eventSeq }: SnapshotRow): EventEntry {
  const { name, profile, persistent, backing, uid, gid } = row;
  return {
    type: 'session.forked',
    data: { from: sessionId, snapshotId: id, eventSeq, name, profile, persistent, backing, uid, gid },
  };
}

/** For `replay`, which looks at neither times nor hashes. */
function asEvent(sessionId: string, seq: number, { type, data }: EventEntry): SessionEvent {
  return { sessionId, seq, at: '', type, data: data as SessionEvent['data'], prevHash: '', hash: '' };
}
