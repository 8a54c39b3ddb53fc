import type { HydrationState, Session } from '../../protocol/entities.ts';
import type { Engine } from '../engine/port.ts';
import type { EventLog } from '../history/event-log.ts';
import type { ProfileRow, Profiles } from '../store/profiles.ts';
import type { SessionFilter, SessionRow, Sessions } from '../store/sessions.ts';
import type { PermissionRows } from '../store/permissions.ts';
import type { Turns } from '../store/turns.ts';
import { idleTimes } from '../sandboxes/idle-plan.ts';
import { PROMPT_CHARACTERS, toSingleLine } from '../base/single-line.ts';
import type { SessionGate } from './session-gate.ts';
import { sessionView } from './session-view.ts';

export interface SessionViewsOptions {
  readonly sessions: Sessions;
  readonly turns: Turns;
  readonly permissionRows: Pick<PermissionRows, 'countWaiting' | 'countWaitingOf'>;
  readonly profiles: Profiles;
  readonly events: EventLog;
  readonly engine: Pick<Engine, 'status'>;
  /** The hydration of the session's workspace; null when its files are all there. */
  readonly hydrationOf: (sessionId: string) => HydrationState | null;
  readonly gate: Pick<SessionGate, 'stateOf'>;
}

interface UnfinishedTurns {
  readonly running: string | null;
  readonly queued: number;
  /** Permissions that wait for a person. */
  readonly waiting: number;
}

/** Sessions as clients see them: the row, and what other modules know of it. */
export class SessionViews {
  readonly #options: SessionViewsOptions;

  constructor(options: SessionViewsOptions) {
    this.#options = options;
  }

  of(row: SessionRow): Session {
    const { turns, permissionRows, profiles, engine } = this.#options;
    const unfinished = {
      running: turns.getRunning(row.id)?.id ?? null,
      queued: turns.countQueued(row.id),
      waiting: permissionRows.countWaitingOf(row.id),
    };
    return this.#view(row, profiles.get(row.profile), unfinished, engine.status().reachable);
  }

  list(filter: SessionFilter): { sessions: Session[]; nextCursor: string | null } {
    const { sessions, turns, permissionRows, profiles, engine } = this.#options;
    const page = sessions.list(filter);
    const unfinished = turns.liveBySession();
    const deployed = new Map(profiles.list().map((profile) => [profile.name, profile]));
    const { reachable } = engine.status();
    const waiting = permissionRows.countWaiting();
    const none = { running: null, queued: 0 };
    return {
      sessions: page.rows.map((row) =>
        this.#view(
          row,
          deployed.get(row.profile) ?? null,
          { ...(unfinished.get(row.id) ?? none), waiting: waiting.get(row.id) ?? 0 },
          reachable,
        ),
      ),
      nextCursor: page.nextCursor,
    };
  }

  #view(
    row: SessionRow,
    profile: ProfileRow | null,
    turns: UnfinishedTurns,
    engineReachable: boolean,
  ): Session {
    const expires = row.status !== 'deleted' && profile !== null;
    return sessionView(
      { ...row, expiresAt: expires ? row.lastActiveAt + idleTimes(profile.config).expire : row.expiresAt },
      {
        engineReachable,
        hydration: row.status === 'deleted' ? null : this.#options.hydrationOf(row.id),
        move: this.#options.gate.stateOf(row.id),
        runningTurn: turns.running,
        queuedTurns: turns.queued,
        waiting: turns.waiting,
        lastPrompt: this.#lastPrompt(row.id),
        lastSeq: this.#options.events.head(row.id).seq,
      },
    );
  }

  #lastPrompt(sessionId: string): string | null {
    // Enough for the characters that are shown, in any encoding and with white space between them.
    const head = this.#options.turns.readLatestInput(sessionId, 8 * PROMPT_CHARACTERS);
    return head === null ? null : toSingleLine(head.toString('utf8'), PROMPT_CHARACTERS);
  }
}
