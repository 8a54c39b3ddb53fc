import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { HoldfastError } from '../protocol/errors.ts';
import { matchesPattern } from '../protocol/path-patterns.ts';
import type { RawPath } from '../project/raw-path.ts';
import {
  type ArtifactConnection,
  type ArtifactContents,
  type PlacedFile,
  placeFiles,
  readContent,
} from './artifact-files.ts';
import { makeFolder } from './folder.ts';
import { findCollisions, whyRefused } from './path-check.ts';
import type { LeftOut, Quarantined } from './plan.ts';
import { quarantineReasons } from './quarantine.ts';

export interface ExportChoice {
  /** Patterns of paths; empty: all. */
  readonly paths: readonly string[];
  /** Patterns of paths that leave the quarantine. */
  readonly released: readonly string[];
  /** Paths that leave it, whatever a pattern makes of their names. */
  readonly releasedPaths?: ReadonlySet<RawPath>;
}

export interface ExportOptions extends ExportChoice {
  readonly folder: string;
  readonly signal?: AbortSignal | undefined;
  /** Called with the number of files that are written. */
  readonly onProgress?: ((done: number, of: number) => void) | undefined;
}

/** Which files of an artifact an export writes, and why it does not write the others. */
export interface ExportPlan {
  readonly travels: readonly PlacedFile[];
  readonly released: readonly Quarantined[];
  readonly quarantined: readonly Quarantined[];
  readonly refused: readonly LeftOut[];
  readonly notChosen: number;
}

export interface Exported extends Omit<ExportPlan, 'travels'> {
  readonly folder: string;
  readonly files: number;
}

/** Each path is checked; what would run on the person's machine stays behind unless it is released. */
export function planExport(
  { files }: Pick<ArtifactContents, 'files'>,
  { paths, released: patterns, releasedPaths }: ExportChoice,
): ExportPlan {
  const chosen: PlacedFile[] = [];
  const refused: LeftOut[] = [];
  const quarantined: Quarantined[] = [];
  const released: Quarantined[] = [];
  let notChosen = 0;
  for (const placed of placeFiles(files)) {
    const { path, file } = placed;
    const why = whyRefused(path);
    if (paths.length > 0 && !paths.some((pattern) => matchesPattern(pattern, path))) notChosen += 1;
    else if (why !== null) refused.push({ path, why });
    else {
      const side = { type: 'file' as const, executable: file.executable, size: file.size };
      const change = { path, before: null, after: side, page: undefined, index: 0 };
      const risks = quarantineReasons(path, change, null, null);
      const isReleased =
        releasedPaths?.has(path) === true || patterns.some((pattern) => matchesPattern(pattern, path));
      if (risks.length > 0) (isReleased ? released : quarantined).push({ path, risks });
      if (risks.length === 0 || isReleased) chosen.push(placed);
    }
  }
  const names = chosen.map(({ path }) => path);
  const collisions = findCollisions(names, new Set(names));
  for (const [path, why] of collisions) refused.push({ path, why });
  return {
    travels: chosen.filter(({ path }) => !collisions.has(path)),
    released: released.filter(({ path }) => !collisions.has(path)),
    ...{ quarantined, refused, notChosen },
  };
}

/**
 * Writes files of an artifact into a new folder, which appears complete or not at all. Each content is compared with its hash. Errors:
 * `already_exists`, `not_found` if nothing is left to write, `protocol_error` for contents that are not those that were kept.
 */
export async function exportArtifact(
  connection: ArtifactConnection,
  contents: ArtifactContents,
  { folder: wanted, signal, onProgress, ...choice }: ExportOptions,
): Promise<Exported> {
  const { id } = contents.artifact;
  const { travels, ...left } = planExport(contents, choice);
  if (travels.length === 0)
    throw new HoldfastError('not_found', `Nothing of ${id} was written`, {
      why:
        left.quarantined.length > 0
          ? 'all that was chosen is in quarantine: it would run on your machine'
          : 'no file of it was chosen',
      next: 'see `holdfast artifact show ARTIFACT --files`; --include-quarantined PATTERN lets files through',
    });
  const folder = await makeFolder(wanted, async (inside) => {
    for (const [done, placed] of travels.entries()) {
      onProgress?.(done, travels.length);
      await inside.makeParents(placed.path);
      await writeOne(connection, id, placed, inside.at(placed.path), signal);
    }
  });
  return { folder, files: travels.length, ...left };
}

async function writeOne(
  connection: ArtifactConnection,
  artifact: string,
  placed: PlacedFile,
  target: Buffer,
  signal: AbortSignal | undefined,
): Promise<void> {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  const out = await open(target, flags, placed.file.executable ? 0o777 : 0o666);
  try {
    for await (const part of readContent(connection, artifact, placed, { signal })) await out.writeFile(part);
    await out.sync();
  } finally {
    await out.close();
  }
}
