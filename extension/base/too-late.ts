import { HoldfastError } from '../../protocol/errors.ts';
import { sanitize } from './sanitize.ts';

const MAX_REASON = 300;

/**
 * Why an answer to a permission does not count: it was given before, its turn has ended, or its session was deleted. Undefined
 * for other errors.
 */
export function whyTooLate(error: unknown): string | undefined {
  const isTooLate = error instanceof HoldfastError && ['conflict', 'not_found'].includes(error.code);
  return isTooLate ? sanitize(error.why ?? error.message, MAX_REASON) : undefined;
}
