import type { MethodName } from '../../protocol/methods.ts';
import type { SessionMove } from '../../protocol/move-state.ts';
import type { SessionGate } from '../sessions/session-gate.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { HandlerTable } from './handler-table.ts';

type AnyHandler = (params: unknown, context: unknown) => unknown;

/**
 * What a session answers that moves to another home: it is read from the database and the snapshots, and changes nothing. The files of
 * a workspace are refused where the sidecar would be used.
 */
const ANSWERED: ReadonlySet<MethodName> = new Set<MethodName>([
  'session/show',
  'session/events',
  'session/subscribe',
  'session/unsubscribe',
  'session/verify',
  'session/search',
  'turn/list',
  'content/read',
  'permission/list',
  'agent/settings',
  'conversation/read',
  'conversation/subscribe',
  'memory/show',
  'memory/history',
  'policy/show',
  'terminal/list',
  'files/stat',
  'files/list',
  'files/read',
  'snapshot/list',
  'snapshot/graph',
  'snapshot/show',
  'snapshot/verify',
  'snapshot/diff',
  'snapshot/patch',
  'snapshot/fork',
  'review/show',
  'review/files',
  'review/file',
  'review/read',
  'review/comments',
  'handoff/changes',
  'handoff/contents',
  'manifest/show',
  'manifest/list',
  'check/list',
  'artifact/list',
  'move/begin',
  'move/abort',
]);

export interface HeldSessionsOptions {
  readonly gate: Pick<SessionGate, 'use' | 'stateOf'>;
  /** By id or name, also one that has moved and is not deleted yet. Errors: `not_found`, `ambiguous_name`. */
  readonly find: (reference: string) => SessionRow;
}

/** The same table, except that a method which may change a session is refused while the session moves to another home. */
export function guardHeldSessions(table: HandlerTable, { gate, find }: HeldSessionsOptions): HandlerTable {
  const guarded = Object.entries(table).map(([name, handler]) => {
    if (ANSWERED.has(name as MethodName)) return [name, handler];
    const run: AnyHandler = (params, context) => {
      const row = sessionOf(params, find);
      const act = (): unknown => (handler as AnyHandler)(params, context);
      if (row === null) return act();
      if (name === 'session/delete' && mayDeleteHeld(gate.stateOf(row.id)?.state, params)) return act();
      return gate.use(row.id, row.name, act);
    };
    return [name, run];
  });
  // Each handler keeps its name, so the type of the table holds.
  return Object.fromEntries(guarded) as HandlerTable;
}

/**
 * Where its source is gone for good, a person has to be able to remove what never came to life. What is left of a session
 * that was let go of is removed by the end of its move; where that cannot be proved any more, by force.
 */
function mayDeleteHeld(state: SessionMove['state'] | undefined, params: unknown): boolean {
  const isForced =
    typeof params === 'object' && params !== null && 'force' in params && params.force === true;
  return state === 'arriving' || (state === 'left' && isForced);
}

/** Null for requests without a session, and for one that does not exist, about which the handler knows more. */
function sessionOf(params: unknown, find: (reference: string) => SessionRow): SessionRow | null {
  if (typeof params !== 'object' || params === null || !('session' in params)) return null;
  if (typeof params.session !== 'string') return null;
  try {
    return find(params.session);
  } catch {
    return null;
  }
}
