import { AUTHOR_NAMES } from '../../protocol/origins.ts';
import { snapshotReasonRule } from '../../protocol/snapshot-reasons.ts';
import { formatBytes, formatCount, formatTime, plain } from '../format.ts';
import type { PageSnapshot } from '../late-messages.ts';

/** How a snapshot is named: its label, the prompt of the turn that it came before or after, or why it was created. */
export function titleOf({ label, turn, reason }: PageSnapshot): string {
  const prompt = turn?.prompt ?? '';
  return plain(label ?? (prompt === '' ? snapshotReasonRule(reason).title : prompt));
}

/** Why it was created and by whom, and how much changed. Nobody asked for those that Holdfast creates. */
export function factsOf(snapshot: PageSnapshot): string {
  const { reason, changedFiles, newBytes, missing, duringTurn } = snapshot;
  const { by, title } = snapshotReasonRule(reason);
  const why = titleOf(snapshot) === title ? null : title;
  return [
    by === 'supervisor' ? (why === null ? 'By Holdfast' : `${why}, by Holdfast`) : why,
    changedFiles > 0 ? formatCount(changedFiles, 'changed file') : 'no changed files',
    newBytes > 0 ? `+${formatBytes(newBytes)}` : null,
    duringTurn ? 'completed during the turn' : null,
    missing > 0 ? `${formatCount(missing, 'file')} missing` : null,
  ]
    .filter((fact) => fact !== null)
    .join(' · ');
}

/** Who asked for it, and for which turn; empty from a supervisor that does not say. */
export function authorOf({ author, turn }: PageSnapshot): string {
  return [
    author === null ? null : `By ${AUTHOR_NAMES[author]}`,
    turn === null ? null : `${turn.id}: ${plain(turn.prompt)}`,
  ]
    .filter((fact) => fact !== null)
    .join(' · ');
}

/** As an entry of a list, where the time tells apart what has one name. */
export function namedWithTime(snapshot: PageSnapshot): string {
  return `${formatTime(snapshot.createdAt)} · ${titleOf(snapshot).slice(0, 60)}`;
}
