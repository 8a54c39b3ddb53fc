import { formatProjectPath } from '../protocol/deploy.ts';
import { HoldfastError } from '../protocol/errors.ts';
import type { Params, Result } from '../protocol/methods.ts';
import { HEAD_LIMITS, type HeadEntry, type REVIEW_BASE_METHODS } from '../protocol/review-base.ts';
import type { CallOptions, CallResult } from '../protocol/wire/shapes.ts';
import { type RawPath, readable, toBytes } from '../project/raw-path.ts';
import { batchesOf, type Blob, contentsOf, sizesOf } from './blobs.ts';
import type { Git } from './git.ts';
import { readLeftOut } from './left-out.ts';
import { prefixOf, whyRefused } from './path-check.ts';
import { projectPlace } from './project-place.ts';
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
/** How long the caller waits for an upload to be ended. */
const END_MS = 2_000;

/** What is about to leave this machine. */
export interface HeadToSend {
  readonly files: number;
  readonly bytes: number;
}

export interface SendHeadOptions {
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: (stage: string) => void;
  /** Called before the first content is sent; not if the session lacks none. */
  readonly onSend?: (what: HeadToSend) => Promise<void> | void;
}

/**
 * Makes the commit that is checked out known to a session's supervisor, as the base of a review: its files without those that a deploy
 * leaves out, and the contents that the session did not begin with. `folder`: the one that the person chose, absolute. Changes nothing
 * in the repository. Errors: `invalid_state` before the first commit, `conflict` where the deployed commit or the project is not in the
 * repository, `not_supported`, `output_limit`.
 */
export async function sendHead(
  connection: ReviewBaseConnection,
  {
    session,
    repository,
    folder,
  }: { readonly session: string; readonly repository: Repository; readonly folder: string },
  options: SendHeadOptions = {},
): Promise<SentHead> {
  const { signal } = options;
  const { head: commit } = repository;
  if (commit === null) {
    throw new HoldfastError('invalid_state', 'There is no commit to compare with', {
      why: 'nothing was committed in this repository yet',
      next: 'use --base start',
    });
  }
  const base = `head:${commit}` as const;
  const begun = (await connection.callWithBytes('review/base/begin', { session, commit }, { signal })).result;
  const { upload } = begun;
  if (upload === null) return { base };
  try {
    options.onProgress?.('Reading the commit');
    const entries = await listFiles(repository, { ...begun, commit, chosen: folder }, signal);
    await sendFiles(connection, { git: repository.git, upload, entries }, options);
    return { base, upload };
  } catch (error) {
    // It would keep its place on the host. A connection that broke ends it, too; a host that hangs must not hold up the caller.
    const signal = AbortSignal.timeout(END_MS);
    await connection.callWithBytes('review/base/end', { upload }, { signal }).catch(() => undefined);
    throw error;
  }
}

async function sendFiles(
  connection: ReviewBaseConnection,
  { git, upload, entries }: { git: Git; upload: string; entries: readonly HeadEntry[] },
  { signal, onProgress, onSend }: SendHeadOptions,
): Promise<void> {
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
  const bytes = missing.reduce((sum, { size }) => sum + size, 0);
  if (bytes > HEAD_LIMITS.bytes) throw unexpected('it asks for more than it takes');
  if (missing.length > 0) await onSend?.({ files: missing.length, bytes });
  for (const batch of batchesOf(missing)) {
    const contents = Buffer.concat(await contentsOf(git, batch));
    await send(connection, upload, contents, signal);
  }
}

/**
 * The files and links of the commit in the project's folder. Submodules are left out: the workspace has no files of them. What a deploy
 * leaves out is left out, too: also where the deployed commit has it, because only the host says which commit that was.
 */
async function listFiles(
  repository: Repository,
  { commit, chosen, origin, folder }: Result<'review/base/begin'> & { commit: string; chosen: string },
  signal: AbortSignal | undefined,
): Promise<HeadEntry[]> {
  const { git } = repository;
  if (origin.head === null) {
    throw new HoldfastError('not_supported', 'The session cannot be compared with a commit', {
      why: 'its project was deployed before the first commit of its repository',
      next: 'deploy it again for new sessions, or use --base start',
    });
  }
  const before = await readDeployed(git, origin.head);
  const committed = await readCommit(git, commit);
  const project = await projectPlace(repository, chosen, { origin, committed });
  const prefix = prefixOf({ origin, folder });
  const isLeftOut = await readLeftOut(repository, { committed, prefix: project }, signal);
  const entries = [...committed].filter(
    ([path, { mode }]) =>
      path.startsWith(prefix) && MODES.has(mode) && !isLeftOut(path.slice(project.length)),
  );
  if (entries.length > HEAD_LIMITS.files) {
    throw new HoldfastError('output_limit', 'The commit cannot be the base of a review', {
      why: `it has more than ${HEAD_LIMITS.files} files`,
      next: 'use --base start',
    });
  }
  const sizes = await sizesOf(
    git,
    entries.map(([, { blob }]) => blob),
  );
  return entries.map(([path, { mode, blob }]): HeadEntry => {
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

function unexpected(why: string): HoldfastError {
  return new HoldfastError('protocol_error', 'The host cannot be sent what the commit has', { why });
}
