/** The end of a connection to a supervisor. */
export interface SupervisorExit {
  readonly at: number;
  /** It was stopped, or replaced by a newer one. */
  readonly isIntended: boolean;
}

/** After this many crashes in a minute another start would not help. */
const MAX_CRASHES_PER_MINUTE = 3;
/** How long the successor of a replaced supervisor may take to answer. */
const SUCCESSOR_MS = 3_000;

/** How long to wait before the next attempt, ms: from 250 ms, doubled up to 30 s. */
export function backoffMs(failures: number): number {
  return Math.min(30_000, 250 * 2 ** Math.min(failures, 10));
}

/**
 * Whether to start a supervisor where none answers. Not after somebody stopped it, and not after repeated crashes or a
 * failed start: then only a person's command starts one.
 */
export function mayStartSupervisor(
  exits: readonly SupervisorExit[],
  startFailed: boolean,
  now: number,
): boolean {
  if (startFailed) return false;
  const last = exits.at(-1);
  if (last === undefined) return true;
  if (last.isIntended) return false;
  const crashes = exits.filter(({ at, isIntended }) => !isIntended && now - at < 60_000);
  return crashes.length < MAX_CRASHES_PER_MINUTE;
}

/** Whether a supervisor was stopped a moment ago: one that a newer one replaces is followed by that one at once. */
export function expectsSuccessor(exits: readonly SupervisorExit[], now: number): boolean {
  const last = exits.at(-1);
  return last?.isIntended === true && now - last.at < SUCCESSOR_MS;
}
