import type { SnapshotReason } from '../../protocol/snapshots.ts';
import { formatBytes, formatCount, formatTime, plain } from '../format.ts';
import type { PageSnapshot } from '../late-messages.ts';

const REASONS: Readonly<Record<SnapshotReason, string>> = {
  manual: 'Created by a person',
  agent: 'Created by the agent',
  'before-turn': 'Before a turn',
  'before-restore': 'Before a restore',
  'before-reset': 'Before a reset',
  'before-delete': 'Before the deletion',
  'before-review': 'Before a review',
  'before-handoff': 'Before a handoff',
  'after-setup': 'After the setup',
};

/** How a snapshot is named: its label, the prompt of the turn that it came before, or why it was created. */
export function titleOf({ label, turn, reason }: PageSnapshot): string {
  const prompt = turn?.prompt ?? '';
  return plain(label ?? (prompt === '' ? REASONS[reason] : prompt));
}

/** Why it was created and by whom, and how much changed. Nobody asked for those that Holdfast creates. */
export function factsOf(snapshot: PageSnapshot): string {
  const { reason, changedFiles, newBytes, missing, duringTurn } = snapshot;
  const why = titleOf(snapshot) === REASONS[reason] ? null : REASONS[reason];
  const isOurs = reason !== 'manual' && reason !== 'agent';
  return [
    isOurs ? (why === null ? 'By Holdfast' : `${why}, by Holdfast`) : why,
    changedFiles > 0 ? formatCount(changedFiles, 'changed file') : null,
    `+${formatBytes(newBytes)}`,
    duringTurn ? 'completed during the turn' : null,
    missing > 0 ? `${formatCount(missing, 'file')} missing` : null,
  ]
    .filter((fact) => fact !== null)
    .join(' · ');
}

/** As an entry of a list, where the time tells apart what has one name. */
export function namedWithTime(snapshot: PageSnapshot): string {
  return `${formatTime(snapshot.createdAt)} · ${titleOf(snapshot).slice(0, 60)}`;
}
