import { diffArrays } from 'diff';

/** Lines `beforeStart…beforeEnd` become `afterStart…afterEnd`. Ends are exclusive; either side may be empty. */
export interface LineChange {
  readonly beforeStart: number;
  readonly beforeEnd: number;
  readonly afterStart: number;
  readonly afterEnd: number;
}

export interface LineLimits {
  /** After this time the rest is replaced as a whole: longer to read, but correct. */
  readonly ms: number;
  /** How many lines may differ between two anchors; beyond that, everything between them is replaced. */
  readonly edits: number;
}

/**
 * The start offsets of all lines, followed by the length of the text. A line includes its newline; the last may have
 * none.
 */
export function lineStarts(text: Buffer): number[] {
  const starts = [0];
  for (let at = text.indexOf(0x0a); at !== -1; at = text.indexOf(0x0a, at + 1)) starts.push(at + 1);
  if (starts.at(-1) !== text.length) starts.push(text.length);
  return starts;
}

/** One change from the first to the last difference: cheap for any number of lines, and always correct. */
export function oneChange(before: Buffer, after: Buffer): LineChange[] {
  if (before.equals(after)) return [];
  const shorter = Math.min(before.length, after.length);
  let same = 0;
  while (same < shorter && before[same] === after[same]) same += 1;
  const head = same === 0 ? 0 : before.lastIndexOf(0x0a, same - 1) + 1;

  let beforeEnd = before.length;
  let afterEnd = after.length;
  while (beforeEnd > head && afterEnd > head && before[beforeEnd - 1] === after[afterEnd - 1]) {
    beforeEnd -= 1;
    afterEnd -= 1;
  }
  const beginsLine = (text: Buffer, at: number): boolean => at === head || text[at - 1] === 0x0a;
  if (!beginsLine(before, beforeEnd) || !beginsLine(after, afterEnd)) {
    const lineEnd = before.indexOf(0x0a, beforeEnd);
    const tail = lineEnd === -1 ? 0 : before.length - lineEnd - 1;
    beforeEnd = before.length - tail;
    afterEnd = after.length - tail;
  }
  const start = countLines(before.subarray(0, head));
  return [
    {
      beforeStart: start,
      beforeEnd: start + countLines(before.subarray(head, beforeEnd)),
      afterStart: start,
      afterEnd: start + countLines(after.subarray(head, afterEnd)),
    },
  ];
}

function countLines(text: Buffer): number {
  let lines = 0;
  let at = 0;
  for (let next = text.indexOf(0x0a); next !== -1; next = text.indexOf(0x0a, at)) {
    lines += 1;
    at = next + 1;
  }
  return at === text.length ? lines : lines + 1;
}

/** The differences between two texts, in order. */
export function lineChanges(before: Buffer, after: Buffer, limits: LineLimits): LineChange[] {
  const numbers = new Map<string, number>();
  const old = numbered(before, numbers);
  const now = numbered(after, numbers);
  const deadline = performance.now() + limits.ms;

  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let oldEnd = old.length;
  let nowEnd = now.length;
  while (oldEnd > head && nowEnd > head && old[oldEnd - 1] === now[nowEnd - 1]) {
    oldEnd -= 1;
    nowEnd -= 1;
  }

  const changes: LineChange[] = [];
  const between = (oldFrom: number, oldTo: number, nowFrom: number, nowTo: number): void => {
    changes.push(...gap({ old, oldFrom, oldTo, now, nowFrom, nowTo }, limits.edits, deadline));
  };
  let oldFrom = head;
  let nowFrom = head;
  for (const [oldAt, nowAt] of anchors(old, now, head, oldEnd, nowEnd)) {
    between(oldFrom, oldAt, nowFrom, nowAt);
    oldFrom = oldAt + 1;
    nowFrom = nowAt + 1;
  }
  between(oldFrom, oldEnd, nowFrom, nowEnd);
  return changes;
}

/** Equal lines get equal numbers. */
function numbered(text: Buffer, numbers: Map<string, number>): number[] {
  const starts = lineStarts(text);
  return starts.slice(0, -1).map((start, index) => {
    const line = text.toString('latin1', start, starts[index + 1]);
    const known = numbers.get(line);
    if (known !== undefined) return known;
    numbers.set(line, numbers.size);
    return numbers.size - 1;
  });
}

/**
 * The longest ordered sequence of lines that occur exactly once on both sides (patience diff). The text between two
 * anchors is compared separately, so the cost depends on the changes and not on the length of the text.
 */
function anchors(
  old: readonly number[],
  now: readonly number[],
  head: number,
  oldEnd: number,
  nowEnd: number,
): [number, number][] {
  const places = new Map<number, { oldAt: number; nowAt: number; times: number }>();
  for (let at = head; at < oldEnd; at += 1) {
    const line = old[at] ?? -1;
    const place = places.get(line);
    if (place === undefined) places.set(line, { oldAt: at, nowAt: -1, times: 1 });
    else place.times += 1;
  }
  for (let at = head; at < nowEnd; at += 1) {
    const place = places.get(now[at] ?? -1);
    if (place?.times !== 1) continue;
    if (place.nowAt === -1) place.nowAt = at;
    else place.times = 2;
  }
  const unique = [...places.values()].filter(({ times, nowAt }) => times === 1 && nowAt !== -1);

  // The longest subsequence that increases on both sides; the lines are already in the order of the old side.
  const tails: number[] = [];
  const previous: number[] = [];
  unique.forEach(({ nowAt }, index) => {
    let low = 0;
    let high = tails.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((unique[tails[middle] ?? 0]?.nowAt ?? 0) < nowAt) low = middle + 1;
      else high = middle;
    }
    previous[index] = low === 0 ? -1 : (tails[low - 1] ?? -1);
    tails[low] = index;
  });
  const run: [number, number][] = [];
  for (let index = tails.at(-1) ?? -1; index !== -1; index = previous[index] ?? -1) {
    const place = unique[index];
    if (place !== undefined) run.push([place.oldAt, place.nowAt]);
  }
  return run.reverse();
}

interface Gap {
  readonly old: readonly number[];
  readonly oldFrom: number;
  readonly oldTo: number;
  readonly now: readonly number[];
  readonly nowFrom: number;
  readonly nowTo: number;
}

function gap(
  { old, oldFrom, oldTo, now, nowFrom, nowTo }: Gap,
  edits: number,
  deadline: number,
): LineChange[] {
  if (oldFrom === oldTo && nowFrom === nowTo) return [];
  const whole = { beforeStart: oldFrom, beforeEnd: oldTo, afterStart: nowFrom, afterEnd: nowTo };
  const timeout = deadline - performance.now();
  if (oldFrom === oldTo || nowFrom === nowTo || timeout <= 0) return [whole];
  const parts = diffArrays(old.slice(oldFrom, oldTo), now.slice(nowFrom, nowTo), {
    maxEditLength: edits,
    timeout,
  }) as { count: number; added: boolean; removed: boolean }[] | undefined;
  if (parts === undefined) return [whole];

  const changes: LineChange[] = [];
  let beforeStart = oldFrom;
  let afterStart = nowFrom;
  let beforeEnd = oldFrom;
  let afterEnd = nowFrom;
  const close = (): void => {
    if (beforeEnd > beforeStart || afterEnd > afterStart) {
      changes.push({ beforeStart, beforeEnd, afterStart, afterEnd });
    }
  };
  for (const { count, added, removed } of parts) {
    if (removed) beforeEnd += count;
    else if (added) afterEnd += count;
    else {
      close();
      beforeStart = beforeEnd += count;
      afterStart = afterEnd += count;
    }
  }
  close();
  return changes;
}
