import type { Duplex } from 'node:stream';
import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { type Profile, seedOf } from '../../protocol/profile.ts';
import type { SeedEntrySchema } from '../../sidecar/wire.ts';
import { failpoint } from '../base/failpoints.ts';
import { Hook } from '../base/hook.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Database } from '../store/database.ts';
import type { Home } from '../store/home.ts';
import type { Operation, Operations } from '../store/operations.ts';
import type { ProfileRow, Profiles } from '../store/profiles.ts';
import type { SessionRow } from '../store/sessions.ts';
import { hasErrorCode } from '../store/storage-error.ts';
import { FilesConnection } from './files-connection.ts';
import { SidecarClient } from './sidecar-client.ts';
import { readRange, type SeedItem, seedItems } from '../profiles/seed-source.ts';

export const SEED = 'workspace.seed';
const HOME_IS_NEW = 'home-is-new';

const PART_BYTES = 2 ** 20;
const PART_ENTRIES = 500;
const PART_CHARACTERS = 200_000;
const PIECE_BYTES = 4 * 2 ** 20;
/** A deploy during the copy removes the code that is being copied. */
const MAX_ATTEMPTS = 3;

/** `isNew`: all of HOME is to be filled, as was found out at an earlier attempt. `markNew` remembers that. */
export interface FilledHome {
  readonly isNew: boolean;
  markNew(): void;
}

/** What workspaces of a profile begin with that its setup has left. */
export interface WorkspaceTemplates {
  has(profile: Pick<ProfileRow, 'config'>): boolean;
  /**
   * Fills the workspace and HOME of a session. The caller holds the session's mutex; the sidecar runs, and no process of the agent. May
   * be repeated after a crash. A HOME in which the agent has something keeps that. Errors: `not_found` when it was removed meanwhile.
   */
  fill(row: SessionRow, profile: ProfileRow, home: FilledHome): Promise<void>;
  /**
   * Makes what the workspace was filled with part of the session's own history. `record` is part of the transaction that ends the
   * seeding. Errors: as `fill`.
   */
  adopt(row: SessionRow, profile: ProfileRow): Promise<Seeded & { readonly record: () => void }>;
}

const FilledAheadSchema = z.object({
  /** The version and the image of the profile that it was filled for. */
  version: z.int(),
  image: z.string(),
  files: z.int(),
  bytes: z.int(),
});
/** What a workspace and HOME that were filled before their session existed were filled with. */
export type FilledAhead = z.infer<typeof FilledAheadSchema>;
/** The data of an intent. */
const IntentSchema = z.object({ filled: FilledAheadSchema.nullable().default(null) });
const NEW_HOME: FilledHome = { isNew: true, markNew: () => undefined };

export interface SeedingOptions {
  readonly home: Pick<Home, 'deploy' | 'deployedGitHistory'>;
  readonly database: Database;
  readonly operations: Operations;
  readonly profiles: Profiles;
  readonly events: EventLog;
  readonly dial: (sessionId: string) => Promise<Duplex>;
  readonly templates: WorkspaceTemplates;
}

interface Seeded {
  files: number;
  bytes: number;
}
const NOTHING: Readonly<Seeded> = { files: 0, bytes: 0 };

/**
 * Copies the project into new and emptied workspaces, once. The intent is stored with the session or with the clean, and ends when
 * every file is there: after a crash the copy continues at the next use. Existing files stay.
 */
export class Seeding {
  /** A workspace was seeded, or begins empty. Runs before the agent's first process, with the session's mutex held. */
  readonly seeded = new Hook<SessionRow>();
  readonly #options: SeedingOptions;
  /** Sessions without an intent: every request asks. */
  readonly #settled = new Set<string>();

  constructor(options: SeedingOptions) {
    this.#options = options;
  }

  /**
   * The workspace will be filled before its next use, or is to begin empty; `filled`: it is filled, and only its history lacks
   * that. Part of the caller's transaction.
   */
  recordIntent(sessionId: string, profile: Profile, filled: FilledAhead | null = null): void {
    const { operations, templates } = this.#options;
    const isEmpty = seedOf(profile) === null && !templates.has({ config: profile });
    if (isEmpty && profile.persistence !== 'persistent') return;
    this.#settled.delete(sessionId);
    const earlier = this.#intent(sessionId);
    // What it was filled with before it was first used may have been cleared.
    if (earlier !== null) operations.recordStep(earlier, earlier.step, { filled });
    else operations.begin({ kind: SEED, sessionId, data: { filled } });
  }

  /** Fills the workspace and HOME of what is no session yet. Its sidecar runs. Errors: those of reading and writing. */
  async fillAhead(row: SessionRow, profile: ProfileRow): Promise<FilledAhead> {
    const { templates } = this.#options;
    const { version, image } = profile;
    if (!templates.has(profile)) return { version, image, ...((await this.#copyProject(row)) ?? NOTHING) };
    await templates.fill(row, profile, NEW_HOME);
    return { version, image, ...NOTHING };
  }

  /** The session is deleted. Part of the caller's transaction. */
  dropIntent(sessionId: string): void {
    this.#settled.delete(sessionId);
    const intent = this.#intent(sessionId);
    if (intent !== null) this.#options.operations.finish(intent, {});
  }

  /** Fills the workspace if it has an intent. The caller holds the session's mutex; the sidecar runs, and no process of the agent. */
  async finishPending(row: SessionRow): Promise<void> {
    if (this.#settled.has(row.id)) return;
    const intent = this.#intent(row.id);
    if (intent !== null && !(await this.#seed(row, intent))) return;
    this.#settled.add(row.id);
  }

  /** What a new workspace of the session's profile begins with; null: nothing. Errors during the iteration: `not_found`. */
  itemsOf({ profile: name }: Pick<SessionRow, 'profile'>): AsyncIterable<SeedItem> | null {
    const { home, profiles } = this.#options;
    const profile = profiles.get(name);
    if (profile === null) return null;
    const seed = seedOf(profile.config);
    if (seed === null) return null;
    const { folder, git, ignore } = seed;
    const { version } = profile;
    const history = git ? home.deployedGitHistory(name, version) : null;
    return seedItems({ code: home.deploy(name, version), history, folder, ignore });
  }

  #intent(sessionId: string): Operation | null {
    const { operations } = this.#options;
    return operations.pending().find((one) => one.kind === SEED && one.sessionId === sessionId) ?? null;
  }

  /** False while the profile is not deployed. */
  async #seed(row: SessionRow, intent: Operation): Promise<boolean> {
    const { profiles, database, operations, events, templates } = this.#options;
    for (let attempt = 1; ; attempt += 1) {
      const profile = profiles.get(row.profile);
      if (profile === null) return false;
      try {
        const ahead = filledAhead(intent, profile);
        if (ahead === null) await this.#clearOutdated(row, intent);
        const isTemplate = templates.has(profile);
        if (isTemplate && ahead === null) await templates.fill(row, profile, this.#homeOf(intent));
        const filled = isTemplate ? await templates.adopt(row, profile) : null;
        const done = filled ?? ahead ?? (await this.#copyProject(row));
        await this.seeded.run(row);
        await failpoint('seed.before-end');
        database.transaction(() => {
          if (done !== null)
            events.append(row.id, [
              {
                type: 'workspace.seeded',
                data: { files: done.files, bytes: done.bytes, codeVersion: profile.version },
              },
            ]);
          filled?.record();
          operations.finish(intent, {});
        });
        return true;
      } catch (error) {
        const now = profiles.get(row.profile);
        const isReplaced = now?.version !== profile.version || now.image !== profile.image;
        const isGone =
          hasErrorCode(error, 'ENOENT') || (error instanceof HoldfastError && error.code === 'not_found');
        if (!isReplaced || !isGone || attempt === MAX_ATTEMPTS) throw error;
      }
    }
  }

  /** It was filled ahead of its session, and the profile has changed since. Nothing else can be there: this is its first use. */
  async #clearOutdated(row: SessionRow, intent: Operation): Promise<void> {
    if (IntentSchema.parse(intent.data).filled === null) return;
    const sidecar = await SidecarClient.connect(() => this.#options.dial(row.id), row.id);
    try {
      await sidecar.clearWorkspace();
      await sidecar.clearHome();
    } finally {
      sidecar.close();
    }
  }

  #homeOf(intent: Operation): FilledHome {
    const isNew = this.#intent(intent.sessionId ?? '')?.step === HOME_IS_NEW;
    return { isNew, markNew: () => void this.#options.operations.recordStep(intent, HOME_IS_NEW, {}) };
  }

  async #copyProject(row: SessionRow): Promise<Seeded | null> {
    const items = this.itemsOf(row);
    return items === null ? null : await seedWorkspace(this.#options.dial, row.id, items);
  }
}

/** What the workspace of an intent was filled with before its session existed, if the profile is still the same. */
function filledAhead({ data }: Operation, { version, image }: ProfileRow): FilledAhead | null {
  const { filled } = IntentSchema.parse(data);
  return filled?.version === version && filled.image === image ? filled : null;
}

/** Copies items into the workspace of a sandbox whose sidecar runs. Existing files stay. */
export async function seedWorkspace(
  dial: SeedingOptions['dial'],
  sandboxId: string,
  items: AsyncIterable<SeedItem>,
): Promise<Seeded> {
  const files = await FilesConnection.open(() => dial(sandboxId), sandboxId);
  try {
    return await copyInto(files, items);
  } finally {
    files.close();
  }
}

type Entry = z.input<typeof SeedEntrySchema>;

async function copyInto(files: FilesConnection, items: AsyncIterable<SeedItem>): Promise<Seeded> {
  const seeded: Seeded = { files: 0, bytes: 0 };
  let entries: Entry[] = [];
  let content: Buffer[] = [];
  let bytes = 0;
  let characters = 0;
  const send = async (): Promise<void> => {
    if (entries.length > 0) await files.call('files/seed', { entries }, { bytes: Buffer.concat(content) });
    entries = [];
    content = [];
    bytes = 0;
    characters = 0;
    await failpoint('seed.after-part');
  };
  for await (const item of items) {
    if (item.kind !== 'folder') seeded.files += 1;
    if (item.kind === 'file') seeded.bytes += item.size;
    if (item.kind === 'file' && item.size > PART_BYTES) {
      await send();
      await sendLarge(files, item);
      continue;
    }
    const size = item.kind === 'file' ? item.size : 0;
    characters += item.path.length + (item.kind === 'link' ? item.target.length : 0);
    if (entries.length === PART_ENTRIES || bytes + size > PART_BYTES || characters > PART_CHARACTERS)
      await send();
    if (item.kind === 'file') {
      const { source, ...entry } = item;
      content.push(await readRange(source, 0, size));
      entries.push(entry);
    } else entries.push(item);
    bytes += size;
  }
  await send();
  return seeded;
}

async function sendLarge(
  files: FilesConnection,
  { path, mode, size, source }: Extract<SeedItem, { kind: 'file' }>,
): Promise<void> {
  try {
    const { result } = await files.call('files/begin', { path, create: true, mode });
    const { upload } = result;
    for (let offset = 0; offset < size; offset += PIECE_BYTES) {
      const piece = await readRange(source, offset, Math.min(PIECE_BYTES, size - offset));
      await files.call('files/append', { upload, offset }, { bytes: piece });
    }
    await files.call('files/commit', { upload, size });
  } catch (error) {
    // The file exists, from an earlier attempt or from the agent: it stays.
    if (error instanceof HoldfastError && EXISTS.has(error.code)) return;
    throw error;
  }
}
const EXISTS: ReadonlySet<string> = new Set([
  'file_exists',
  'file_is_a_directory',
  'file_not_a_directory',
  'file_not_regular',
]);
