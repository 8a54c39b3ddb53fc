import { ARTIFACT_LIMITS } from '../../protocol/artifacts.ts';
import { matchesPattern } from '../../protocol/path-patterns.ts';
import { formatPath } from '../../protocol/paths.ts';
import { TimeSlice } from '../../protocol/time-slice.ts';
import { parseRoot } from '../../snapshot-format/entries.ts';
import { OBJECT_KINDS, type ObjectReader } from '../../snapshot-format/objects.ts';
import { Comparison } from '../snapshots/compare/comparison.ts';
import { differences } from '../snapshots/compare/differences.ts';
import { LineThread } from '../snapshots/patch/line-thread.ts';
import { isTooLarge, patchChangeOf, wholeContent } from '../snapshots/patch/patch-changes.ts';
import { writePatch } from '../snapshots/patch/write-patch.ts';
import type { Content } from './artifact-writer.ts';
import type { TreePair } from './changed-files.ts';

const EXECUTABLE = 0o100;

/** Paths that were chosen and cannot be kept; the first of them by name. */
export class LeftOut {
  count = 0;
  readonly paths: string[] = [];

  add(path: readonly Uint8Array[]): void {
    this.count += 1;
    if (this.paths.length < ARTIFACT_LIMITS.leftOutPaths) this.paths.push(formatPath(path));
  }
}

/**
 * The files of `after` that the patterns choose, or without patterns those that are not as in `before`, by path. What is chosen and
 * is no file is left out; git's own folder is chosen only by its name.
 */
export async function* chosenFiles(
  reader: ObjectReader,
  { before, after }: TreePair,
  patterns: readonly string[],
  leftOut: LeftOut,
  signal: AbortSignal,
): AsyncGenerator<Content> {
  const top = {
    path: [],
    before: patterns.length > 0 ? null : parseRoot(await reader.read(before, OBJECT_KINDS.root)),
    after: parseRoot(await reader.read(after, OBJECT_KINDS.root)),
  };
  for await (const { path, after: entry } of differences(reader, top, new TimeSlice(signal))) {
    if (path.length === 0 || entry === null || entry.type === 'directory') continue;
    const name = path.map((segment) => segment.toString('latin1')).join('/');
    const isGit = name === '.git' || name.startsWith('.git/');
    if (patterns.length > 0 ? !patterns.some((one) => matchesPattern(one, name)) : isGit) continue;
    if (entry.type !== 'file') {
      leftOut.add(path);
      continue;
    }
    yield {
      path: formatPath(path),
      executable: (entry.mode & EXECUTABLE) !== 0,
      size: entry.size,
      bytes: wholeContent(reader, entry),
    };
  }
}

/** What differs between the trees, as far as the patterns choose it, as a patch that `git apply` takes. */
export async function* chosenPatch(
  reader: ObjectReader,
  { before, after }: TreePair,
  patterns: readonly string[],
  { leftOut, lineWorker, signal }: { leftOut: LeftOut; lineWorker: string | URL; signal: AbortSignal },
): AsyncGenerator<Uint8Array> {
  const comparison = await Comparison.create(reader, { before, after, path: [], signal });
  const isChosen = (path: readonly Buffer[]): boolean => {
    const name = path.map((segment) => segment.toString('latin1')).join('/');
    return patterns.length === 0 || patterns.some((one) => matchesPattern(one, name));
  };
  const lines = new LineThread(lineWorker);
  try {
    for await (const difference of comparison.differences(null, signal)) {
      const { path, origin } = difference;
      // Half of a rename would lose the other half.
      if (!isChosen(path) && !(origin !== null && isChosen(origin.path))) continue;
      const change = patchChangeOf(reader, difference);
      if (change === null) continue;
      if (isTooLarge(change)) leftOut.add(path);
      else yield* writePatch([change], lines, () => leftOut.add(path));
    }
  } finally {
    await lines.close();
  }
}
