import { randomBytes } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { HandoffIdSchema, ManifestIdSchema } from '../protocol/handoff.ts';

const MAX_JOURNALS = 10_000;
const MAX_BYTES = 256 * 2 ** 20;
const FOLDER = 'holdfast';

const gitId = z.string().regex(/^[0-9a-f]{40}$/);
const MODE = z.enum(['100644', '100755', '120000']);
/** A file of a working tree, by the git blob of its bytes. */
const StoredFileSchema = z.object({ mode: MODE, blob: gitId });
export type StoredFile = z.infer<typeof StoredFileSchema>;

const common = {
  version: z.literal(1),
  handoff: HandoffIdSchema,
  manifest: ManifestIdSchema,
  session: z.string(),
  /** ms since 1970. */
  at: z.number(),
  /** The client that makes it. */
  pid: z.number().int().positive(),
  /** `making`: it was killed before its end, and has to be taken back. */
  state: z.enum(['making', 'made']),
  /** Whether the supervisor knows that it was made. Journals of earlier versions lack it. */
  recorded: z.boolean().default(true),
  /** What `handoff/record` says of it. */
  record: z.record(z.string(), z.union([z.string(), z.number(), z.null()])),
};

const ofBranch = {
  branch: z.string(),
  commit: gitId,
  /** Whether the branch was made, so that one of this name is ours. Journals of earlier versions lack it. */
  hasBranch: z.boolean().default(true),
};

const JournalSchema = z.discriminatedUnion('to', [
  z.object({ ...common, to: z.literal('branch'), ...ofBranch }),
  z.object({
    ...common,
    to: z.literal('worktree'),
    ...ofBranch,
    /** Absolute path of the worktree's folder. */
    worktree: z.string(),
  }),
  z.object({
    ...common,
    to: z.literal('tree'),
    /** Top folder of the work tree. */
    root: z.string(),
    /** The reference that keeps the files as they were. */
    undoRef: z.string(),
    /** Paths are latin1: one character for each byte. */
    files: z.array(
      z.object({ path: z.string(), before: StoredFileSchema.nullable(), after: StoredFileSchema.nullable() }),
    ),
    /** Folders that did not exist before. */
    folders: z.array(z.string()),
  }),
]);
export type Journal = z.infer<typeof JournalSchema>;
export type JournalOf<T extends Journal['to']> = Extract<Journal, { to: T }>;

/**
 * What each handoff made, in the repository's own git directory, where only the person writes: enough to take it back, also when the
 * client was killed half-way.
 */
export class Journals {
  readonly #folder: string;

  /** `commonDirectory`: the git directory that worktrees share. */
  constructor(commonDirectory: string) {
    this.#folder = join(commonDirectory, FOLDER);
  }

  /** Durable when it returns. */
  async write(journal: Journal): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    const temporary = join(this.#folder, `.${journal.handoff}.${randomBytes(8).toString('hex')}`);
    try {
      const file = await open(temporary, 'wx', 0o600);
      try {
        await file.writeFile(JSON.stringify(journal));
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(temporary, this.#path(journal.handoff));
    } catch (error) {
      // On a full disk nothing else would remove it.
      await rm(temporary, { force: true });
      throw error;
    }
    const folder = await open(this.#folder, 'r');
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }

  async remove(handoff: string): Promise<void> {
    await rm(this.#path(handoff), { force: true });
  }

  /** The oldest first; `damaged`: names of files that cannot be read. */
  async list(): Promise<{ readonly journals: Journal[]; readonly damaged: string[] }> {
    const names = await readdir(this.#folder).catch((error: unknown) => {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
      throw error;
    });
    const journals: Journal[] = [];
    const damaged: string[] = [];
    for (const name of names.slice(0, MAX_JOURNALS)) {
      if (!/^hand-[a-z2-7]{16}\.json$/.test(name)) continue;
      const parsed = JournalSchema.safeParse(await readJson(join(this.#folder, name)));
      if (parsed.success && name === `${parsed.data.handoff}.json`) journals.push(parsed.data);
      else damaged.push(name);
    }
    return { journals: journals.sort((one, other) => one.at - other.at), damaged };
  }

  #path(handoff: string): string {
    return join(this.#folder, `${HandoffIdSchema.parse(handoff)}.json`);
  }
}

/** Undefined for what is no JSON: one bad file must not block the others. */
async function readJson(path: string): Promise<unknown> {
  try {
    const file = await open(path, 'r');
    try {
      if ((await file.stat()).size > MAX_BYTES) return undefined;
      return JSON.parse(await readFile(file, 'utf8'));
    } finally {
      await file.close();
    }
  } catch (error) {
    if (error instanceof SyntaxError || (error instanceof Error && 'code' in error)) return undefined;
    throw error;
  }
}

/** Handoffs that run in this process: an editor's process outlives its handoffs. */
const running = new Set<string>();

/** Notes that the handoff runs, until the action has ended in either way. */
export async function whileRunning<T>(handoff: string, act: () => Promise<T>): Promise<T> {
  running.add(handoff);
  try {
    return await act();
  } finally {
    running.delete(handoff);
  }
}

/** Whether somebody still makes the handoff, as far as this machine knows. */
export function isBeingMade({ handoff, pid }: Pick<Journal, 'handoff' | 'pid'>): boolean {
  if (pid === process.pid) return running.has(handoff);
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
