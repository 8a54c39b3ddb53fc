import type { TreeEntry } from '../../snapshot-format/entries.ts';
import type { ObjectReader } from '../../snapshot-format/objects.ts';
import type { DecisionState } from '../store/reviews.ts';
import { carryLines, countLines } from './line-decisions.ts';
import { hasModePart, normalized, textDecisions, textOf } from './unit-state.ts';
import { isDecidedByHunk, type ReviewUnit } from './review-units.ts';
import { fileBytes, type TextComparison } from '../snapshots/patch/text-comparison.ts';

/** Nothing is decided, and it was before. */
const AGAIN: DecisionState = { whole: null, mode: null, text: null, again: true };

/**
 * The decisions about a path of a newer target; null where there is nothing to say. `old`: the path as it was when it was
 * decided; null if that is not known any more. A rejected change that is there again has to be reviewed again.
 */
export async function carryDecision(
  state: DecisionState,
  old: ReviewUnit | null,
  now: ReviewUnit,
  reader: ObjectReader,
  texts: TextComparison,
): Promise<DecisionState | null> {
  if (old === null) return AGAIN;
  if (old.id === now.id && state.whole === 'accept') return state;
  const isText = isDecidedByHunk(old) && isDecidedByHunk(now);
  if (!isText) return isUndecided(state) ? state : AGAIN;
  const read = async (entry: TreeEntry | null): Promise<Buffer> =>
    entry?.type === 'file' ? await fileBytes(reader, entry) : Buffer.alloc(0);
  const [base, target, newer] = [await read(old.before), await read(old.after), await read(now.after)];
  if ([base, target, newer].some((text) => text.includes(0))) return isUndecided(state) ? state : AGAIN;
  const decided = textDecisions(state, await texts.changes(old.id, base, target));
  const changes = await texts.changes(now.id, base, newer);
  const carried = carryLines(decided, target, { base, target: newer, changes });
  const isSameMode = old.after?.mode === now.after?.mode && hasModePart(old) === hasModePart(now);
  const mode = isSameMode && hasModePart(now) && decided.mode === 'accept' ? 'accept' : null;
  const lost =
    countLines(carried.accepted) < countLines(decided.accepted) ||
    countLines(decided.rejected) > 0 ||
    (decided.mode !== null && hasModePart(now) && mode === null);
  return normalized(now, { whole: null, mode, text: textOf(carried), again: state.again || lost });
}

function isUndecided({ whole, mode, text }: DecisionState): boolean {
  return whole === null && mode === null && text === null;
}
