import { HoldfastError } from '../../protocol/errors.ts';
import { REVIEW_LIMITS } from '../../protocol/review.ts';
import type { Decision } from '../../protocol/review.ts';

/** What one request decides: changes, or everything that is not decided at a revision of the review. */
export type Part =
  | { readonly decisions: Decision[] }
  | { readonly all: { readonly review: string; readonly revision: number } };

/** As many decisions in each part as a request may have. */
export function inParts(decisions: readonly Decision[]): Part[] {
  const parts: Part[] = [];
  for (let from = 0; from < decisions.length; from += REVIEW_LIMITS.decisions)
    parts.push({ decisions: decisions.slice(from, from + REVIEW_LIMITS.decisions) });
  return parts;
}

/**
 * Sends one part after another; `send` returns how many changes it decided. Returns the sum. Errors: those of `send`, which after a
 * part that succeeded also tell what was done by then, in the words of `say`.
 */
export async function sendParts(
  parts: readonly Part[],
  say: (count: number) => string,
  send: (part: Part) => Promise<number>,
): Promise<number> {
  let count = 0;
  try {
    for (const part of parts) count += await send(part);
    return count;
  } catch (error) {
    if (count === 0) throw error;
    const { code, sentence } = HoldfastError.from(error);
    throw new HoldfastError(code, `Only ${say(count)}`, {
      why: sentence,
      next: 'look at the review again; Undo Last Decision takes back up to 1,000 at a time',
      cause: error,
    });
  }
}
