import type { BlameOrigin } from '../../protocol/blame.ts';
import { formatAge } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';

/** What changed a line last, in one line; undefined for what nobody changed. */
export function originText(
  { kind, isExact, turns, turnCount }: BlameOrigin,
  now: number,
): string | undefined {
  const [turn] = turns;
  switch (kind) {
    case 'start':
      return undefined;
    case 'person':
      return 'Changed by you, while no turn ran.';
    case 'turn': {
      const prompt = turn === undefined || turn.prompt === '' ? 'a turn' : `“${sanitize(turn.prompt)}”`;
      const when = turn === undefined ? '' : `, ${ago(turn.at, now)}`;
      return `Changed by ${prompt}${when}${isExact ? '.' : ', or by you before or after it.'}`;
    }
    case 'unknown':
      return turnCount === 0
        ? 'It is not known what changed this line: the history does not go back that far.'
        : `Changed by one of ${turnCount} turns, or by you: no snapshot between them is kept.`;
  }
}

function ago(time: string, now: number): string {
  const age = formatAge(time, now);
  if (age === 'now') return 'just now';
  return /^\d{4}-/.test(age) ? `on ${age}` : `${age} ago`;
}
