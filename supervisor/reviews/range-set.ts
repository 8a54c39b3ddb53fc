/** Line numbers as sorted, disjoint, non-empty ranges [start, end). */
export type RangeSet = readonly (readonly [start: number, end: number])[];

export const NOTHING: RangeSet = [];

export function rangeOf(start: number, end: number): RangeSet {
  return start < end ? [[start, end]] : NOTHING;
}

export function union(one: RangeSet, other: RangeSet): RangeSet {
  const all = [...one, ...other].sort(([a], [b]) => a - b);
  const merged: [number, number][] = [];
  for (const [start, end] of all) {
    const last = merged.at(-1);
    if (last !== undefined && start <= last[1]) last[1] = Math.max(last[1], end);
    else merged.push([start, end]);
  }
  return merged;
}

export function subtract(from: RangeSet, taken: RangeSet): RangeSet {
  const left: [number, number][] = [];
  let at = 0;
  for (const [start, end] of from) {
    let begin = start;
    while ((taken[at]?.[1] ?? Infinity) <= begin) at += 1;
    for (let next = at; ; next += 1) {
      const [cut, resume] = taken[next] ?? [Infinity, Infinity];
      if (cut >= end) break;
      if (cut > begin) left.push([begin, cut]);
      begin = Math.max(begin, resume);
      if (begin >= end) break;
    }
    if (begin < end) left.push([begin, end]);
  }
  return left;
}

export function intersection(one: RangeSet, other: RangeSet): RangeSet {
  return subtract(one, subtract(one, other));
}

export function shift(set: RangeSet, by: number): RangeSet {
  return set.map(([start, end]) => [start + by, end + by]);
}

/** How many lines the set has. */
export function sizeOf(set: RangeSet): number {
  return set.reduce((sum, [start, end]) => sum + end - start, 0);
}
