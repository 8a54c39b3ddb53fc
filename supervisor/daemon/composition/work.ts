import { pausedTime } from '../../history/paused-time.ts';
import { PROFILE_DEFAULTS } from '../../../protocol/profile.ts';
import type { Log } from '../../base/log.ts';
import { idleTimes } from '../../sandboxes/idle-plan.ts';
import { TerminalRows } from '../../store/terminals.ts';
import { Execs } from '../../terminals/execs.ts';
import { Terminals } from '../../terminals/terminals.ts';
import { TurnQueue } from '../../turns/turn-queue.ts';
import { TurnRecords } from '../../turns/turn-records.ts';
import type { StorageLayer } from './storage.ts';
import type { SandboxLayer } from './sandboxes.ts';
import type { SnapshotLayer } from './snapshots.ts';
import type { AgentLayer } from './agents.ts';

/** How long turns may take to end when their session is stopped or deleted. */
const DRAIN_TURNS_MS = 30_000;

/** What clients run in sandboxes: turns, execs and terminals. */
export function createWork(below: StorageLayer & SandboxLayer & SnapshotLayer & AgentLayer, log: Log) {
  const {
    database,
    records,
    profiles,
    events,
    freezing,
    turnChanges,
    turnSnapshots,
    changes,
    permissions,
    now,
  } = below;
  const turnRecords = new TurnRecords({ ...below, sessions: records });
  turnRecords.ending.on((turnId) => permissions.closeOf(turnId));
  turnRecords.ending.on((turnId) => turnChanges.onTurnEnding(turnId));
  const queue = new TurnQueue({
    ...below,
    changes,
    sessions: records,
    records: turnRecords,
    profileOf: (turn) => profiles.getOrThrow(records.get(turn.sessionId).profile).config,
    isFrozen: (sessionId) => freezing.isFrozen(sessionId),
    pausedTime: (sessionId) => pausedTime(events, sessionId, now()),
    sweep: (sessionId, turnId) => below.agentSweep.run(sessionId, turnId, 'a turn was terminated'),
    beforeTurn: (session, turnId, signal) => turnSnapshots.createBeforeTurn(session, turnId, signal),
    log: log.child('turns'),
  });
  const execs = new Execs({ ...below, log: log.child('execs') });
  const terminals = new Terminals({
    ...below,
    rows: new TerminalRows(database),
    idleTimeoutOf: (sessionId) => {
      const row = records.peek(sessionId);
      const profile = row === null ? null : profiles.get(row.profile);
      return profile === null ? PROFILE_DEFAULTS.idle.stop : idleTimes(profile.config).stop;
    },
    log: log.child('terminals'),
  });
  /** Ends every turn, exec and terminal of a session. */
  const drain = async (sessionId: string, why: string): Promise<void> => {
    // The turns first: one that waits for its sandbox is cancelled, and has not failed.
    const turns = queue.cancelAll(sessionId, DRAIN_TURNS_MS);
    below.lifecycle.interruptDispatches(sessionId, why);
    await Promise.all([turns, execs.endAll(sessionId), terminals.endAll(sessionId, why)]);
  };
  return { queue, execs, terminals, drain };
}

export type WorkLayer = ReturnType<typeof createWork>;
