import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HoldfastError } from '../protocol/errors.ts';
import { type RawPath, readable } from '../project/raw-path.ts';
import type { HandoffConnection } from './changes.ts';
import type { Content } from './contents.ts';
import type { Git } from './git.ts';
import type { HandoffPlan, LeftOut, PlannedChange } from './plan.ts';

/** Larger texts are not merged. */
const MAX_MERGE_BYTES = 16 * 2 ** 20;
const MAX_LISTED = 20;

export type GitMode = '100644' | '100755' | '120000';

/** What a path becomes. `mode` null: it goes away. */
export interface Edit {
  readonly path: RawPath;
  readonly mode: GitMode | null;
  /** What the agent made, or the result of a merge; null where the file goes away. */
  readonly content: Content | Buffer | null;
}

/** What is at a path now, in a commit or in a working tree. */
export interface Present {
  readonly mode: GitMode;
  readonly blob: string;
  read(): Promise<Buffer>;
}

export interface ResolveOptions {
  readonly git: Git;
  readonly plan: HandoffPlan;
  readonly connection: HandoffConnection;
  /** Null: nothing is there. */
  readonly presentAt: (planned: PlannedChange) => Promise<Present | null>;
  /** Whether the commit that the session began with has the path. */
  readonly wasTracked: (path: RawPath) => boolean;
  readonly signal?: AbortSignal | undefined;
}

export interface Resolved {
  readonly edits: readonly Edit[];
  /** Paths in which the person's and the agent's changes were merged. */
  readonly merged: readonly RawPath[];
  readonly conflicts: readonly LeftOut[];
}

/**
 * What each path becomes when the agent's changes are applied to what is there now: three-way where that is not what the agent began
 * with. Works in memory and in private temporary files.
 */
export async function resolveChanges(options: ResolveOptions): Promise<Resolved> {
  const { plan, connection, presentAt, signal } = options;
  const { travels, contents, trees } = plan;
  const changes = travels.map(({ change }) => change);
  const other = new AbortController();
  const both = AbortSignal.any([other.signal, ...(signal === undefined ? [] : [signal])]);
  const fetched = (['after', 'before'] as const).map((side) =>
    contents.fetch(connection, trees, side, changes, { signal: both }),
  );
  try {
    await Promise.all(fetched);
  } finally {
    // If one fails, the other ends too: nobody writes into contents that are closed.
    other.abort();
    await Promise.allSettled(fetched);
  }

  const edits: Edit[] = [];
  const merged: RawPath[] = [];
  const conflicts: LeftOut[] = [];
  for (const planned of travels) {
    const present = await presentAt(planned);
    const outcome = await resolveOne(options, planned, present);
    if (typeof outcome === 'string') conflicts.push({ path: planned.path, why: outcome });
    else if (outcome !== null) {
      edits.push(outcome);
      if (Buffer.isBuffer(outcome.content)) merged.push(planned.path);
    }
  }
  return { edits, merged, conflicts };
}

/** An edit, null for none, or why there is a conflict. */
async function resolveOne(
  { git, plan: { contents }, wasTracked }: ResolveOptions,
  { path, change }: PlannedChange,
  present: Present | null,
): Promise<Edit | null | string> {
  const { before, after } = change;
  const began = before === null || before.type === 'other' ? null : contents.of(change, 'before');
  if (after === null) {
    if (present === null) return null;
    if (began !== null && present.blob === began.blob) return { path, mode: null, content: null };
    return 'the agent deleted it, and it has changed here';
  }
  const content = contents.of(change, 'after');
  const mode = modeOf(change, present);
  if (present === null) {
    if (began !== null && wasTracked(path)) return 'the agent changed it, and it was deleted here';
    return { path, mode, content };
  }
  if (present.blob === content.blob && isLink(present.mode) === isLink(mode))
    return present.mode === mode ? null : { path, mode, content };
  if (began === null) return 'the agent added it, and it was added here with another content';
  if (present.blob === began.blob) return { path, mode, content };
  if (isLink(mode) || isLink(present.mode) || before?.type !== 'file')
    return 'it is a link, and it has changed here too';
  if (began.size > MAX_MERGE_BYTES || content.size > MAX_MERGE_BYTES)
    return 'it has changed here too, and it is too large to merge';
  const texts = {
    ours: await present.read(),
    base: await contents.readWhole(began),
    theirs: await contents.readWhole(content),
  };
  if (Object.values(texts).some((text) => text.includes(0)))
    return 'it has changed here too, and it is no text';
  const result = await mergeTexts(git, texts);
  return result === null
    ? 'the agent changed lines that have changed here too'
    : { path, mode, content: result };
}

/** The agent decides about the executable bit only if it changed it. */
function modeOf({ before, after }: PlannedChange['change'], present: Present | null): GitMode {
  if (after?.type === 'symlink') return '120000';
  const wanted = after?.executable === true ? '100755' : '100644';
  const isKept = before?.type === 'file' && before.executable === after?.executable;
  return isKept && present !== null && !isLink(present.mode) ? present.mode : wanted;
}

function isLink(mode: GitMode): boolean {
  return mode === '120000';
}

/** Null if both changed the same lines. */
async function mergeTexts(
  git: Git,
  texts: { readonly ours: Buffer; readonly base: Buffer; readonly theirs: Buffer },
): Promise<Buffer | null> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-merge-'));
  try {
    for (const [name, text] of Object.entries(texts))
      await writeFile(join(folder, name), text, { flag: 'wx' });
    // The number of conflicts, up to 127.
    const accept = Array.from({ length: 128 }, (_, code) => code);
    const { code, output } = await git
      .in(folder)
      .run(['merge-file', '-p', '--quiet', 'ours', 'base', 'theirs'], { accept });
    return code === 0 ? output : null;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The error for conflicts. Nothing has been written. */
export function conflictError(conflicts: readonly LeftOut[]): HoldfastError {
  const listed = conflicts.slice(0, MAX_LISTED).map(({ path, why }) => `${readable(path)}: ${why}`);
  const more = conflicts.length > listed.length ? ` (and ${conflicts.length - listed.length} more)` : '';
  return new HoldfastError('conflict', 'The changes were not handed off', {
    why: `${conflicts.length === 1 ? '1 file conflicts' : `${conflicts.length} files conflict`}: ${listed.join('; ')}${more}`,
    next: 'nothing was written; choose other files with --paths, hand off without --onto, or resolve them in the new branch',
    details: { conflicts: conflicts.length },
  });
}
