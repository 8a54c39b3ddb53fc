import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath } from '../../protocol/paths.ts';
import type { TreeEntry } from '../../snapshot-format/entries.ts';
import type { ObjectReader } from '../../snapshot-format/objects.ts';
import type { PathSegments } from '../snapshots/compare/differences.ts';
import type { DecisionState } from '../store/reviews.ts';
import { workspaceText } from './line-decisions.ts';
import type { ReviewUnit } from './review-units.ts';
import { fileBytes } from '../snapshots/patch/text-comparison.ts';
import { type Item, MAX_REPLACED_BYTES, type Replacement } from './workspace-changes.ts';

/**
 * What changes in the workspace when a decision replaces another one: what is rejected is as in the base, all else as in
 * the target. Errors: `not_supported` for what cannot be written back through the calls that a save uses.
 */
export async function replacementsOf(
  unit: ReviewUnit,
  from: DecisionState | null,
  to: DecisionState | null,
  reader: ObjectReader,
): Promise<Replacement[]> {
  if (!isRejecting(from) && !isRejecting(to)) return [];
  if (from?.whole === 'reject' && to?.whole === 'reject') return [];
  const before = await itemsOf(unit, from, reader);
  const after = await itemsOf(unit, to, reader);
  const replacements: Replacement[] = [];
  for (const [index, { path, item }] of before.entries()) {
    const wanted = after[index]?.item ?? null;
    if (!isEqual(item, wanted)) replacements.push({ path, from: item, to: wanted });
  }
  return replacements;
}

function isRejecting(state: DecisionState | null): boolean {
  if (state === null) return false;
  const { whole, mode, text } = state;
  return (
    whole === 'reject' ||
    mode === 'reject' ||
    (text !== null && text.rejected.removed.length + text.rejected.added.length > 0)
  );
}

/** What the paths of a unit hold under a decision; the same paths in the same order for each. */
async function itemsOf(
  unit: ReviewUnit,
  state: DecisionState | null,
  reader: ObjectReader,
): Promise<{ readonly path: PathSegments; readonly item: Item }[]> {
  const { path, before, after, origin } = unit;
  const isRejected = state?.whole === 'reject';
  if (origin !== null) {
    const moved = await itemOf(unit, after, reader);
    const back: Item = moved?.type === 'file' ? { ...moved, mode: origin.mode } : moved;
    // The file is at its old place before it leaves the new one.
    return isRejected
      ? [
          { path: origin.path, item: back },
          { path, item: null },
        ]
      : [
          { path: origin.path, item: null },
          { path, item: moved },
        ];
  }
  if (isRejected) return [{ path, item: await itemOf(unit, before, reader) }];
  const isParts = isRejecting(state) && before?.type === 'file' && after?.type === 'file';
  if (!isParts) return [{ path, item: await itemOf(unit, after, reader) }];
  const target = await fileBytes(reader, after);
  const text = state?.text ?? null;
  const bytes = text === null ? target : workspaceText(await fileBytes(reader, before), target, text);
  const { mode } = state?.mode === 'reject' ? before : after;
  return [{ path, item: { type: 'file', bytes, mode } }];
}

async function itemOf(unit: ReviewUnit, entry: TreeEntry | null, reader: ObjectReader): Promise<Item> {
  if (entry === null) return null;
  if (entry.type === 'symlink') return { type: 'symlink', target: entry.target };
  if (entry.type === 'directory' && (unit.kind === 'added' || unit.kind === 'deleted'))
    return { type: 'directory' };
  if (entry.type === 'file' && entry.size <= MAX_REPLACED_BYTES)
    return { type: 'file', bytes: await fileBytes(reader, entry), mode: entry.mode };
  const path = formatPath(unit.path);
  throw new HoldfastError('not_supported', `${path} cannot be rejected here`, {
    why:
      entry.type === 'file'
        ? `it is larger than ${MAX_REPLACED_BYTES / 2 ** 20} MiB`
        : `a ${entry.type} cannot be put back through the calls that edit files`,
    next: 'restore the path with `holdfast snapshot restore SESSION SNAPSHOT --path PATH`, or leave it undecided',
    details: { path },
  });
}

function isEqual(one: Item, other: Item): boolean {
  if (one === null || other === null) return one === other;
  if (one.type === 'file' && other.type === 'file') {
    return one.mode === other.mode && one.bytes.equals(other.bytes);
  }
  if (one.type === 'symlink' && other.type === 'symlink') return one.target.equals(other.target);
  return one.type === other.type;
}
