import type { HandoffPlan } from '../../handoff/plan.ts';
import { readable } from '../../project/raw-path.ts';
import type { HandoffTarget } from '../../protocol/handoff.ts';
import { formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';

const MAX_LISTED = 8;

export const TARGETS: Readonly<Record<HandoffTarget, { readonly label: string; readonly detail: string }>> = {
  worktree: {
    label: 'New Worktree',
    detail: 'A commit on a new branch, in a new folder beside your repository. Your files stay as they are.',
  },
  branch: { label: 'New Branch', detail: 'The same commit, checked out nowhere' },
  tree: {
    label: 'Working Tree',
    detail: 'Your files change, all of them or none; the index stays. Files that you changed too are merged.',
  },
  patch: { label: 'Patch', detail: 'A file for git am. Your repository stays as it is.' },
  dir: { label: 'Folder', detail: 'The changed files in a new folder. Needs no repository.' },
};

type Described = Pick<
  HandoffPlan,
  'travels' | 'released' | 'quarantined' | 'refused' | 'ignored' | 'notChosen'
> & {
  readonly begun: Pick<HandoffPlan['begun'], 'review' | 'running' | 'base'> & {
    readonly target: Pick<HandoffPlan['begun']['target'], 'missing'>;
  };
};

/** What stays behind and why, and what was let out of quarantine, a line each. */
export function describeLeftOut(plan: Described): string[] {
  const { begun, ignored } = plan;
  const lines: string[] = [];
  const notAccepted = begun.review?.notAccepted ?? 0;
  if (notAccepted > 0)
    lines.push(`${formatCount(notAccepted, 'change')} not accepted ${stay(notAccepted)} behind.`);
  if (begun.review === null)
    lines.push('There is no review: everything that the agent changed is handed off.');
  lines.push(...describeStayedBehind(plan));
  if (ignored.length > 0)
    lines.push(`${formatCount(ignored.length, 'ignored file')} ${stay(ignored.length)} behind.`);
  if (begun.target.missing > 0)
    lines.push(
      `${formatCount(begun.target.missing, 'file')} could not be read and ${stay(begun.target.missing)} behind.`,
    );
  if (begun.running > 0)
    lines.push('The agent is still running: its later changes are not part of this handoff.');
  if (begun.base.kind === 'snapshot')
    lines.push('What the workspace began with is not known: it is compared with its oldest snapshot.');
  return lines;
}

/** What of a handoff or an export is let through, held back or refused, a line each. */
export function describeStayedBehind({
  released,
  quarantined,
  refused,
}: Pick<Described, 'released' | 'quarantined' | 'refused'>): string[] {
  const lines: string[] = [];
  if (released.length > 0)
    lines.push(
      `You let ${formatCount(released.length, 'file')} out of quarantine: ${listed(released.map(({ path }) => readable(path)))}.`,
    );
  if (quarantined.length > 0)
    lines.push(
      `${formatCount(quarantined.length, 'file')} ${stay(quarantined.length)} in quarantine: ${listed(quarantined.map(({ path }) => readable(path)))}.`,
    );
  if (refused.length > 0)
    lines.push(
      `${formatCount(refused.length, 'path')} no repository may get: ${listed(refused.map(({ path, why }) => `${readable(path)} (${why})`))}.`,
    );
  return lines;
}

function stay(count: number): string {
  return count === 1 ? 'stays' : 'stay';
}

function listed(texts: readonly string[]): string {
  const more = texts.length > MAX_LISTED ? ` and ${texts.length - MAX_LISTED} more` : '';
  return (
    texts
      .slice(0, MAX_LISTED)
      .map((text) => sanitize(text, 100))
      .join(', ') + more
  );
}
