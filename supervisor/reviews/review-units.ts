import { createHash, type Hash as HashState } from 'node:crypto';
import { HoldfastError } from '../../protocol/errors.ts';
import { formatPath } from '../../protocol/paths.ts';
import { REVIEW_LIMITS } from '../../protocol/review.ts';
import { type Risk, riskRank, RISKS, risksOf } from '../../protocol/risk.ts';
import type { Change } from '../../protocol/snapshots.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import type { Hash, ObjectReader } from '../../snapshot-format/objects.ts';
import type { TreeEntry } from '../../snapshot-format/entries.ts';
import { type Difference, differences, type PathSegments } from '../snapshots/compare/differences.ts';
import { changeKind } from '../snapshots/compare/entry-equality.ts';
import { findEntry } from '../snapshots/compare/find-entry.ts';
import { contentKey, Renames, type RenameSource } from '../snapshots/compare/renames.ts';

/** A review of more paths than this would be read by nobody. */
export const MAX_UNITS = 200_000;

/** What is decided together: one changed path, a rename, or a path that became a folder with what is below it. */
export interface ReviewUnit {
  /** Formatted; unique in a review. */
  readonly key: string;
  readonly path: PathSegments;
  readonly kind: Change['kind'];
  readonly before: TreeEntry | null;
  readonly after: TreeEntry | null;
  /** Of a rename: where the file was, with the attributes that it had there. */
  readonly origin: { readonly path: PathSegments; readonly mode: number; readonly size: number } | null;
  /** How many changed paths below it go with it. */
  readonly below: number;
  readonly risks: readonly Risk[];
  /** Depends on both sides: see ReviewFileIdSchema. */
  readonly id: string;
}

/** One difference between the trees; `origin` of a file that was renamed. */
interface UnitDifference extends Difference {
  readonly kind: Change['kind'];
  readonly origin: RenameSource | null;
}

/**
 * What differs between two trees and is reviewed, in path order, from one walk. Only unedited files count as renamed: of
 * all others the whole text is to be read.
 */
async function visibleDifferences(
  reader: ObjectReader,
  { before, after }: { readonly before: Hash; readonly after: Hash },
  signal?: AbortSignal,
): Promise<UnitDifference[]> {
  const top = {
    path: [],
    before: await findEntry(reader, before, []),
    after: await findEntry(reader, after, []),
  };
  const renames = new Renames();
  const found: (Difference & { readonly kind: Change['kind'] })[] = [];
  for await (const difference of differences(reader, top, new TimeSlice(signal))) {
    const kind = changeKind(difference.before, difference.after);
    if (kind === null || !isVisible({ ...difference, kind })) continue;
    found.push({ ...difference, kind });
    renames.add(difference);
    if (found.length > MAX_UNITS) {
      throw new HoldfastError(
        'output_limit',
        `More than ${MAX_UNITS.toLocaleString('en-US')} paths changed`,
        {
          next: 'delete files that need no review, or choose a later base',
        },
      );
    }
  }
  renames.pairIdentical();
  renames.freeCandidates();
  return found.flatMap((difference): UnitDifference[] => {
    if (difference.after === null && renames.isRenamedAway(difference.path)) return [];
    const origin = difference.before === null ? renames.sourceOf(difference.path) : null;
    return [{ ...difference, kind: origin === null ? difference.kind : 'renamed', origin }];
  });
}

/** The units of the differences between two trees, the most dangerous first. Errors: `output_limit`. */
export async function collectUnits(
  reader: ObjectReader,
  trees: { readonly before: Hash; readonly after: Hash },
  signal?: AbortSignal,
): Promise<ReviewUnit[]> {
  const units: Draft[] = [];
  /** Units whose path is a folder on one side only. They take in what follows below their path. */
  let whole: Draft | null = null;
  /** A folder that came or went. What is below it says so too; alone it is a unit. */
  let pendingFolder: Draft | null = null;
  const flush = (): void => {
    if (pendingFolder !== null) units.push(pendingFolder);
    pendingFolder = null;
  };
  for (const difference of await visibleDifferences(reader, trees, signal)) {
    if (whole !== null && isBelow(difference.path, whole.path)) {
      whole.below += 1;
      for (const risk of risksOfDifference(difference)) whole.risks.add(risk);
      if (difference.origin === null) continue;
      // A file that moved into it: here it is new, and where it was it is gone.
      units.push(deletionOf(difference, difference.origin));
      continue;
    }
    whole = null;
    const { path, before, after, kind, origin } = difference;
    if (pendingFolder !== null && isBelow(path, pendingFolder.path)) pendingFolder = null;
    flush();
    const draft: Draft = { path, before, after, kind, origin, below: 0, risks: new Set() };
    for (const risk of risksOfDifference(difference)) draft.risks.add(risk);
    if (isWholeFolder(draft)) whole = draft;
    if ((kind === 'added' || kind === 'deleted') && (after ?? before)?.type === 'directory') {
      pendingFolder = draft;
      continue;
    }
    units.push(draft);
  }
  flush();
  return withoutLeftFolders(splitOverlappingRenames(units)).map(finished).sort(byRisk);
}

/** Whether a unit's hunks can be decided one by one: a file that was changed where it is, and is not large. */
export function isDecidedByHunk({ kind, before, after }: ReviewUnit): boolean {
  return (
    kind === 'modified' &&
    before?.type === 'file' &&
    after?.type === 'file' &&
    Math.max(before.size, after.size) <= REVIEW_LIMITS.textBytes
  );
}

interface Draft extends Omit<ReviewUnit, 'key' | 'id' | 'risks' | 'below'> {
  below: number;
  readonly risks: Set<Risk>;
}

/**
 * A rename out of a folder that became something else: the folder goes as a whole, so the file is new where it is now.
 */
function splitOverlappingRenames(units: readonly Draft[]): Draft[] {
  const wholes = units.filter(isWholeFolder);
  if (wholes.length === 0) return [...units];
  const keys = new Set(wholes.map(({ path }) => keyOf(path)));
  const isInWhole = (path: PathSegments): boolean =>
    path.some((_, length) => length > 0 && keys.has(keyOf(path.slice(0, length))));
  return units
    .filter(({ path }) => !isInWhole(path))
    .map((unit) =>
      unit.origin !== null && isInWhole(unit.origin.path) ? { ...unit, kind: 'added', origin: null } : unit,
    );
}

/** A folder that became something else, or the other way round. It is decided with all that is below it. */
function isWholeFolder({ kind, before, after }: Pick<ReviewUnit, 'kind' | 'before' | 'after'>): boolean {
  return kind === 'typechange' && (before?.type === 'directory' || after?.type === 'directory');
}

/** A folder that came or went with a renamed file is no unit of its own. */
function withoutLeftFolders(units: readonly Draft[]): readonly Draft[] {
  const left = new Set<string>();
  for (const { origin } of units) {
    for (let length = (origin?.path.length ?? 0) - 1; length > 0; length -= 1) {
      left.add(keyOf(origin?.path.slice(0, length) ?? []));
    }
  }
  return units.filter(
    ({ kind, before, path }) =>
      !(kind === 'deleted' && before?.type === 'directory' && left.has(keyOf(path))),
  );
}

function deletionOf({ after }: UnitDifference, origin: RenameSource): Draft {
  const { path, mode } = origin;
  const name = path.at(-1) ?? Buffer.alloc(0);
  // The content is the same on both sides of an unedited rename.
  const before = after === null ? null : { ...after, name, mode };
  return { path, before, after: null, kind: 'deleted', origin: null, below: 0, risks: new Set() };
}

function finished(draft: Draft): ReviewUnit {
  const risks = RISKS.filter((risk) => draft.risks.has(risk));
  return { ...draft, key: formatPath(draft.path), risks, id: idOf(draft) };
}

function byRisk(one: ReviewUnit, other: ReviewUnit): number {
  return riskRank(one.risks) - riskRank(other.risks) || (one.key < other.key ? -1 : 1);
}

/** Times and the grouping of hard links are no part of a review. */
function isVisible({ kind, before, after }: Omit<UnitDifference, 'origin'>): boolean {
  if (kind !== 'mode' || before === null || after === null) return true;
  return attributesKey(before) !== attributesKey(after);
}

function attributesKey({ mode, xattrs }: TreeEntry): string {
  return [mode, ...xattrs.map(({ name, value }) => `${name.toString('hex')}=${value.toString('hex')}`)].join(
    ' ',
  );
}

function risksOfDifference({ path, before, after, origin }: UnitDifference): Risk[] {
  const entry = after ?? before;
  if (entry === null) return [];
  return risksOf({
    names: path,
    type: entry.type,
    oldMode: origin?.mode ?? before?.mode ?? null,
    newMode: after?.mode ?? null,
    newBytes: after?.type === 'file' ? after.size : null,
    link: entry.type === 'symlink' ? entry.target : null,
  });
}

function idOf({ path, before, after, kind, origin }: Draft): string {
  const state = createHash('sha256');
  state.update(`${kind}\0${formatPath(path)}\0`);
  if (origin !== null) state.update(`${formatPath(origin.path)}\0${origin.mode}\0`);
  addEntry(state, before);
  addEntry(state, after);
  return state.digest('hex').slice(0, 24);
}

/** Everything that is reviewed of an entry. Of a folder that goes as a whole, all that is in it, with its times. */
function addEntry(state: HashState, entry: TreeEntry | null): void {
  if (entry === null) {
    state.update('none\0');
    return;
  }
  state.update(`${entry.type} ${attributesKey(entry)}\0`);
  if (entry.type === 'file') state.update(contentKey(entry), 'latin1');
  else if (entry.type === 'symlink') state.update(entry.target);
  else if (entry.type === 'directory') for (const { hash } of entry.content.items) state.update(hash);
  state.update('\0');
}

function isBelow(path: PathSegments, folder: PathSegments): boolean {
  return path.length > folder.length && folder.every((name, index) => path[index]?.equals(name) === true);
}

function keyOf(path: PathSegments): string {
  return path.map((name) => name.toString('latin1')).join('\0');
}
