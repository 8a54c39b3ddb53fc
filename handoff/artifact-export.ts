import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import {
  ARTIFACT_LIMITS,
  type ARTIFACT_METHODS,
  type Artifact,
  type ArtifactFile,
  artifactList,
} from '../protocol/artifacts.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Envelope } from '../protocol/manifest.ts';
import { readUnverified } from '../protocol/manifest-verification.ts';
import type { Params, Result } from '../protocol/methods.ts';
import { matchesPattern } from '../protocol/path-patterns.ts';
import { parsePath } from '../protocol/paths.ts';
import type { CallOptions, CallResult } from '../protocol/wire/shapes.ts';
import { fromBytes, type RawPath } from '../project/raw-path.ts';
import { makeFolder } from './folder.ts';
import { findCollisions, whyRefused } from './path-check.ts';
import type { LeftOut, Quarantined } from './plan.ts';
import { quarantineReasons } from './quarantine.ts';

type ArtifactMethod = keyof typeof ARTIFACT_METHODS;

/** The connection to a supervisor, which may be on another machine. */
export interface ArtifactConnection {
  callWithBytes<M extends ArtifactMethod>(
    method: M,
    params: Params<M>,
    options?: CallOptions,
  ): Promise<CallResult<Result<M>>>;
}

export interface ArtifactContents {
  readonly artifact: Artifact;
  readonly envelope: Envelope;
  /** In the order of their contents. */
  readonly files: readonly ArtifactFile[];
}

export interface ExportOptions {
  readonly folder: string;
  /** Patterns of paths; empty: all. */
  readonly paths: readonly string[];
  /** Patterns of paths that leave the quarantine. */
  readonly released: readonly string[];
  readonly signal?: AbortSignal | undefined;
}

export interface Exported {
  readonly folder: string;
  readonly files: number;
  readonly released: readonly Quarantined[];
  readonly quarantined: readonly Quarantined[];
  readonly refused: readonly LeftOut[];
  readonly notChosen: number;
}

/** One file at its place in the contents of the artifact. */
interface Placed {
  readonly path: RawPath;
  readonly file: ArtifactFile;
  readonly start: number;
}

/**
 * The list of an artifact's files, which is the one that its signed statement is about; the signature is not checked. The statement
 * has no sizes: they are within the bounds of an artifact, whatever another host says. Errors: `protocol_error` if it is not.
 */
export async function readArtifactFiles(
  connection: ArtifactConnection,
  id: string,
  signal?: AbortSignal,
): Promise<ArtifactContents> {
  const { artifact, envelope } = (
    await connection.callWithBytes('artifact/show', { artifact: id }, { signal })
  ).result;
  const files: ArtifactFile[] = [];
  let bytes = 0;
  let characters = 0;
  for (let from: number | null = 0; from !== null;) {
    const params = { artifact: id, from };
    const page: Result<'artifact/files'> = (
      await connection.callWithBytes('artifact/files', params, { signal })
    ).result;
    files.push(...page.files);
    for (const { size, path } of page.files) {
      bytes += size;
      characters += path.length;
    }
    const goesOn: boolean = page.next === null || (page.next === files.length && page.next > from);
    if (!goesOn || files.length > ARTIFACT_LIMITS.files || characters > ARTIFACT_LIMITS.pathCharacters)
      throw unexpected(id, 'the list of its files does not end');
    if (bytes > ARTIFACT_LIMITS.bytes) throw unexpected(id, 'its files are larger than they can be');
    from = page.next;
  }
  const sha256 = createHash('sha256').update(artifactList(files)).digest('hex');
  if (artifact.id !== id || sha256 !== artifact.sha256)
    throw unexpected(id, 'the list of its files is another one than was kept');
  const statement = readUnverified(JSON.stringify(envelope));
  const subject = statement?.subject.find(({ name }) => name === 'files')?.digest['sha256'];
  if (statement?.predicate.artifact !== id || subject !== sha256)
    throw unexpected(id, 'its signed statement is about something else');
  return { artifact, envelope, files };
}

/**
 * Writes files of an artifact into a new folder, which appears complete or not at all. Each path is checked and each content compared
 * with its hash. What would run on the person's machine stays behind unless it is released. Errors: `already_exists`, `not_found` if
 * nothing is left to write, `protocol_error` for contents that are not those that were kept.
 */
export async function exportArtifact(
  connection: ArtifactConnection,
  { artifact, files }: ArtifactContents,
  { folder: wanted, paths, released: patterns, signal }: ExportOptions,
): Promise<Exported> {
  const chosen: Placed[] = [];
  const refused: LeftOut[] = [];
  const quarantined: Quarantined[] = [];
  const released: Quarantined[] = [];
  let notChosen = 0;
  let start = 0;
  for (const file of files) {
    const path = parsePath(file.path).map(fromBytes).join('/');
    const placed = { path, file, start };
    start += file.size;
    const why = whyRefused(path);
    if (paths.length > 0 && !paths.some((pattern) => matchesPattern(pattern, path))) notChosen += 1;
    else if (why !== null) refused.push({ path, why });
    else {
      const side = { type: 'file' as const, executable: file.executable, size: file.size };
      const change = { path, before: null, after: side, page: undefined, index: 0 };
      const risks = quarantineReasons(path, change, null, null);
      const isReleased = patterns.some((pattern) => matchesPattern(pattern, path));
      if (risks.length > 0) (isReleased ? released : quarantined).push({ path, risks });
      if (risks.length === 0 || isReleased) chosen.push(placed);
    }
  }
  const names = chosen.map(({ path }) => path);
  const collisions = findCollisions(names, new Set(names));
  for (const [path, why] of collisions) refused.push({ path, why });
  const travels = chosen.filter(({ path }) => !collisions.has(path));
  if (travels.length === 0)
    throw new HoldfastError('not_found', `Nothing of ${artifact.id} was written`, {
      why:
        quarantined.length > 0
          ? 'all that was chosen is in quarantine: it would run on your machine'
          : 'no file of it was chosen',
      next: 'see `holdfast artifact show ARTIFACT --files`; --include-quarantined PATTERN lets files through',
    });
  const folder = await makeFolder(wanted, async (inside) => {
    for (const { path, file, start: from } of travels) {
      await inside.makeParents(path);
      await writeOne(connection, artifact.id, { path, file, start: from }, inside.at(path), signal);
    }
  });
  const rest = released.filter(({ path }) => !collisions.has(path));
  return { folder, files: travels.length, released: rest, quarantined, refused, notChosen };
}

async function writeOne(
  connection: ArtifactConnection,
  artifact: string,
  { file, start }: Placed,
  target: Buffer,
  signal: AbortSignal | undefined,
): Promise<void> {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  const out = await open(target, flags, file.executable ? 0o777 : 0o666);
  try {
    const hash = createHash('sha256');
    for (let at = 0; at < file.size;) {
      signal?.throwIfAborted();
      const { bytes } = await connection.callWithBytes(
        'artifact/read',
        { artifact, offset: start + at },
        { signal },
      );
      const part = bytes.subarray(0, file.size - at);
      if (part.length === 0) throw unexpected(artifact, `${file.path} is shorter than it was`);
      hash.update(part);
      await out.writeFile(part);
      at += part.length;
    }
    if (hash.digest('hex') !== file.sha256)
      throw unexpected(artifact, `${file.path} has another content than was kept`);
    await out.sync();
  } finally {
    await out.close();
  }
}

function unexpected(artifact: string, why: string): HoldfastError {
  return new HoldfastError('protocol_error', `The artifact ${artifact} cannot be used`, { why });
}
