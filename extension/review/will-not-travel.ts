import { whyRefused } from '../../handoff/path-check.ts';
import { fromBytes, type RawPath } from '../../project/raw-path.ts';
import { ignoredPaths } from '../../protocol/ignored-paths.ts';
import { parsePath } from '../../protocol/paths.ts';
import type { ReviewFile } from '../../protocol/review.ts';
import { QUARANTINED_RISKS } from '../../protocol/risk.ts';
import { describeRisks } from './review-model.ts';

/** A change that a handoff leaves behind, also if it is accepted. */
export interface StayingFile {
  readonly file: ReviewFile;
  /** For a person, as `in quarantine: runs on a build server`. */
  readonly why: string;
}

/**
 * What a handoff would leave behind or put into quarantine, by its own rules: paths that no repository may get, what git does not
 * store, what ignore files name, and what would run on the person's machine. What is rejected does not count. `readIgnoreFile`: of
 * a folder of the accepted tree, as latin1, with an empty path for the top; null for none.
 */
export async function whatStays(
  files: readonly ReviewFile[],
  readIgnoreFile: (folder: RawPath) => Promise<string | null>,
): Promise<StayingFile[]> {
  const candidates = files
    // Git has no folders of its own.
    .filter(({ state, type }) => state !== 'rejected' && type !== 'directory')
    .map((file) => ({ file, path: rawPath(file.path) }));
  // What the person's repository has already is not ignored there.
  const added = candidates.filter(({ file: { kind } }) => kind === 'added' || kind === 'renamed');
  const ignored = await ignoredPaths(
    added.map(({ path }) => path),
    readIgnoreFile,
  );
  return candidates.flatMap(({ file, path }): StayingFile[] => {
    const why = reasonOf(file, path, ignored);
    return why === null ? [] : [{ file, why }];
  });
}

function reasonOf({ type, risks }: ReviewFile, path: RawPath, ignored: ReadonlySet<RawPath>): string | null {
  const refused = whyRefused(path);
  if (refused !== null) return refused;
  if (ignored.has(path)) return 'ignored by git';
  if (type === 'fifo' || type === 'socket') return 'git stores files and links only';
  const quarantined = risks.filter((risk) => QUARANTINED_RISKS.has(risk));
  return quarantined.length === 0 ? null : `in quarantine: ${describeRisks(quarantined)}`;
}

function rawPath(path: string): RawPath {
  return parsePath(path).map(fromBytes).join('/');
}
