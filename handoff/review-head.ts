import { formatProjectPath } from '../protocol/deploy.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Params, Result } from '../protocol/methods.ts';
import { HEAD_LIMITS, type HeadEntry, type REVIEW_BASE_METHODS } from '../protocol/review-base.ts';
import type { CallOptions, CallResult } from '../protocol/wire/shapes.ts';
import { fromBytes, type RawPath, readable, toBytes } from '../project/raw-path.ts';
import type { Git } from './git.ts';
import { prefixOf, whyRefused } from './path-check.ts';
import { readCommit, type Repository } from './repository.ts';

type BaseMethod = keyof typeof REVIEW_BASE_METHODS;

/** The connection to a supervisor, which may be on another machine. */
export interface ReviewBaseConnection {
  callWithBytes<M extends BaseMethod>(
    method: M,
    params: Params<M>,
    options?: CallOptions & { readonly bytes?: Uint8Array },
  ): Promise<CallResult<Result<M>>>;
}

/** What `review/open` takes. */
export interface SentHead {
  readonly base: `head:${string}`;
  readonly upload?: string;
}

const MODES = new Set(['100644', '100755', '120000']);
/** Contents that git prints at once. */
const BATCH_BYTES = 32 * 2 ** 20;

/**
 * Makes the commit that is checked out known to a session's supervisor, as the base of a review: its files, and the contents that the
 * session did not begin with. Changes nothing in the repository. Errors: `invalid_state` before the first commit, `conflict` where
 * the deployed commit is not in the repository, `not_supported`, `output_limit`.
 */
export async function sendHead(
  connection: ReviewBaseConnection,
  { session, repository }: { readonly session: string; readonly repository: Repository },
  {
    signal,
    onProgress,
  }: { readonly signal?: AbortSignal | undefined; readonly onProgress?: (stage: string) => void } = {},
): Promise<SentHead> {
  const { git, head: commit } = repository;
  if (commit === null) {
    throw new HoldfastError('invalid_state', 'There is no commit to compare with', {
      why: 'nothing was committed in this repository yet',
      next: 'use --base start',
    });
  }
  const base = `head:${commit}` as const;
  const begun = (await connection.callWithBytes('review/base/begin', { session, commit }, { signal })).result;
  const { upload, origin, folder } = begun;
  if (upload === null) return { base };
  onProgress?.('Reading the commit');
  const entries = await listFiles(git, {
    commit,
    deployed: origin.head,
    prefix: prefixOf({ origin, folder }),
  });
  for (let from = 0; from < entries.length; from += HEAD_LIMITS.entries) {
    const page = entries.slice(from, from + HEAD_LIMITS.entries);
    await connection.callWithBytes('review/base/append', { upload, entries: page }, { signal });
  }
  onProgress?.('Comparing');
  const sizes = new Map(entries.map(({ blob, size }) => [blob, size]));
  const missing: Blob[] = [];
  for (let from: number | null = 0; from !== null;) {
    const params = { upload, from };
    const page: Result<'review/base/missing'> = (
      await connection.callWithBytes('review/base/missing', params, { signal })
    ).result;
    for (const blob of page.blobs) {
      const size = sizes.get(blob);
      // A host may ask for what the commit has in these files, and for nothing else.
      if (size === undefined) throw unexpected(`it asks for ${blob}, which is not in the commit`);
      sizes.delete(blob);
      missing.push({ blob, size });
    }
    if (page.next !== null && page.next !== missing.length) throw unexpected('its list does not advance');
    from = page.next;
  }
  if (missing.reduce((sum, { size }) => sum + size, 0) > HEAD_LIMITS.bytes)
    throw unexpected('it asks for more than it takes');
  for (const batch of batchesOf(missing)) {
    onProgress?.('Sending what the session lacks');
    await send(connection, upload, await contentsOf(git, batch), signal);
  }
  return { base, upload };
}

interface Blob {
  readonly blob: string;
  readonly size: number;
}

/** The files and links of the commit in the project's folder. Submodules are left out: the workspace has no files of them. */
async function listFiles(
  git: Git,
  { commit, deployed, prefix }: { commit: string; deployed: string | null; prefix: RawPath },
): Promise<HeadEntry[]> {
  const before = deployed === null ? new Map<RawPath, unknown>() : await readDeployed(git, deployed);
  const committed = await readCommit(git, commit);
  const chosen = [...committed].filter(([path, { mode }]) => path.startsWith(prefix) && MODES.has(mode));
  if (chosen.length > HEAD_LIMITS.files) {
    throw new HoldfastError('output_limit', 'The commit cannot be the base of a review', {
      why: `it has more than ${HEAD_LIMITS.files} files`,
      next: 'use --base start',
    });
  }
  const sizes = await sizesOf(
    git,
    chosen.map(([, { blob }]) => blob),
  );
  return chosen.map(([path, { mode, blob }]): HeadEntry => {
    const why = whyRefused(path);
    if (why !== null) {
      throw new HoldfastError('not_supported', `The commit has a path that is no base: ${readable(path)}`, {
        why,
        next: 'use --base start',
      });
    }
    const names = path.slice(prefix.length).split('/');
    return {
      path: formatProjectPath(names.map(toBytes)),
      mode: mode === '120000' ? '120000' : mode === '100755' ? '100755' : '100644',
      blob,
      size: sizes.get(blob) ?? 0,
      wasDeployed: before.has(path),
    };
  });
}

async function readDeployed(git: Git, commit: string): Promise<Map<RawPath, unknown>> {
  if ((await git.ask(['cat-file', '-e', `${commit}^{commit}`])) !== null)
    return await readCommit(git, commit);
  throw new HoldfastError('conflict', 'This is not the repository that the session began with', {
    why: `it lacks the commit ${commit.slice(0, 12)}, which was deployed`,
    next: 'name the repository with --repository, or fetch the commit',
  });
}

async function sizesOf(git: Git, blobs: readonly string[]): Promise<Map<string, number>> {
  const listing = await git.text(['cat-file', '--batch-check=%(objectname) %(objectsize)'], {
    input: Buffer.from(blobs.map((blob) => `${blob}\n`).join('')),
    what: 'The files of the commit cannot be read',
  });
  const sizes = new Map<string, number>();
  for (const line of listing.split('\n')) {
    const [blob = '', size = ''] = line.split(' ');
    if (/^\d+$/.test(size)) sizes.set(blob, Number(size));
  }
  const lost = blobs.find((blob) => !sizes.has(blob));
  if (lost === undefined) return sizes;
  throw new HoldfastError('conflict', 'The files of the commit cannot be read', {
    why: `the repository lacks the object ${lost}`,
    next: 'see `git fsck`',
  });
}

function batchesOf(blobs: readonly Blob[]): Blob[][] {
  const batches: Blob[][] = [];
  let bytes = Infinity;
  for (const blob of blobs) {
    if (bytes + blob.size > BATCH_BYTES) {
      batches.push([]);
      bytes = 0;
    }
    batches.at(-1)?.push(blob);
    bytes += blob.size;
  }
  return batches;
}

/** The contents of blobs behind each other. */
async function contentsOf(git: Git, blobs: readonly Blob[]): Promise<Buffer> {
  const output = await git.bytes(['cat-file', '--batch=%(objectname)'], {
    input: Buffer.from(blobs.map(({ blob }) => `${blob}\n`).join('')),
    what: 'The files of the commit cannot be read',
  });
  const parts: Buffer[] = [];
  let at = 0;
  for (const { blob, size } of blobs) {
    const begin = at + blob.length + 1;
    if (fromBytes(output.subarray(at, begin)) !== `${blob}\n`) throw unreadable(blob);
    parts.push(output.subarray(begin, begin + size));
    at = begin + size + 1;
  }
  if (at !== output.length) throw unreadable('its end');
  return Buffer.concat(parts);
}

async function send(
  connection: ReviewBaseConnection,
  upload: string,
  bytes: Buffer,
  signal: AbortSignal | undefined,
): Promise<void> {
  // Also without a byte: files may be empty.
  for (let from = 0; from === 0 || from < bytes.length; from += HEAD_LIMITS.requestBytes) {
    const part = bytes.subarray(from, from + HEAD_LIMITS.requestBytes);
    await connection.callWithBytes('review/base/contents', { upload }, { signal, bytes: part });
  }
}

function unreadable(what: string): HoldfastError {
  return new HoldfastError('conflict', 'The files of the commit cannot be read', {
    why: `git printed something else for ${what}`,
  });
}

function unexpected(why: string): HoldfastError {
  return new HoldfastError('protocol_error', 'The host cannot be told what the commit has', { why });
}
