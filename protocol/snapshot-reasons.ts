import type { Author } from './agent-events.ts';

export interface SnapshotReasonRule {
  /** Who asks for such a snapshot. */
  readonly by: Author;
  /** How lists name one that has no label. */
  readonly title: string;
  /** It stays until somebody deletes it. The others are thinned out with age; the agent's own also with their number. */
  readonly isKept?: true;
  /** It shows the turn that ran after or before it: the one that started next, or the one that had just ended. */
  readonly turn?: 'next' | 'last';
  /** It shows where work begins: what changed before it is not the work of the turn that runs. */
  readonly isBeginning?: true;
  /** The conversation does not show it: nothing has happened yet. */
  readonly isSilent?: true;
}

/** Why snapshots are created. A new reason is a line here and, for people, one in the table of `docs/snapshots.md`. */
export const SNAPSHOT_REASON_RULES = {
  manual: { by: 'person', title: 'Created by a person', isKept: true },
  start: { by: 'supervisor', title: 'Start of the session', isBeginning: true, isSilent: true },
  'before-turn': { by: 'supervisor', title: 'Before a turn', turn: 'next', isBeginning: true },
  'after-turn': { by: 'supervisor', title: 'After a turn', turn: 'last' },
  'before-restore': { by: 'supervisor', title: 'Before a restore' },
  'before-reset': { by: 'supervisor', title: 'Before a reset' },
  'before-delete': { by: 'supervisor', title: 'Before the deletion' },
  'before-review': { by: 'supervisor', title: 'Reviewed' },
  'before-handoff': { by: 'supervisor', title: 'Before a handoff' },
  'after-setup': { by: 'supervisor', title: 'After the setup', isBeginning: true },
  agent: { by: 'agent', title: 'Created by the agent' },
} as const satisfies Readonly<Record<string, SnapshotReasonRule>>;

export type SnapshotReason = keyof typeof SNAPSHOT_REASON_RULES;
export const SNAPSHOT_REASONS = Object.keys(SNAPSHOT_REASON_RULES) as [SnapshotReason, ...SnapshotReason[]];

export function snapshotReasonRule(reason: SnapshotReason): SnapshotReasonRule {
  return SNAPSHOT_REASON_RULES[reason];
}
