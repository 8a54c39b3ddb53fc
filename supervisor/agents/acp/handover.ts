import type { TurnSummary } from '../../store/turns.ts';

/** What an agent without memory is told; null if nothing came before the turn. */
export function handoverText(
  turns: readonly Pick<TurnSummary, 'id' | 'startedAt'>[],
  turnId: string,
): string | null {
  return turns.some(({ id, startedAt }) => id !== turnId && startedAt !== null) ? '' : null;
}
