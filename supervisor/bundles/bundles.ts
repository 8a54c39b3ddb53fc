import { randomBytes } from 'node:crypto';
import { z } from 'zod';
import { BundleSignerSchema } from '../../protocol/bundles.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { type HostKey, openHostKey } from '../manifests/host-key.ts';
import type { SnapshotService } from '../snapshots/snapshot-service.ts';
import type { Hydration } from '../snapshots/hydration.ts';
import type { Home } from '../store/home.ts';
import type { Operations } from '../store/operations.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SnapshotRow } from '../store/snapshots.ts';
import type { BundleExport, BundleExports } from './bundle-exports.ts';
import type { BundleImport, BundleImports, Imported } from './bundle-imports.ts';

/** An import holds its history in memory, which a file may make as large as the limits allow. */
const MOST_AT_ONCE = 2;
/** A client that asks for nothing for so long is gone. */
const IDLE_MS = 300_000;
/** How long the bundle of a move is kept for a client whose connection broke. */
const RESUME_MS = 120_000;
const COMMIT = 'bundle.commit';

export interface BundlesOptions {
  readonly home: Pick<Home, 'id' | 'hostKey'>;
  readonly exports: BundleExports;
  readonly imports: BundleImports;
  readonly profiles: Pick<Profiles, 'getOrThrow'>;
  readonly snapshotService: Pick<SnapshotService, 'create' | 'find' | 'findSession'>;
  readonly hydration: Pick<Hydration, 'start'>;
  readonly operations: Operations;
  readonly onImported: (sessionId: string) => void;
}

const ImportedSessionSchema = z.object({
  sessionId: z.string(),
  snapshotId: z.string(),
  signedBy: BundleSignerSchema,
  events: z.number(),
  contents: z.number(),
});
export type ImportedSession = z.infer<typeof ImportedSessionSchema>;
/** The stored result of a commit. */
const CommittedSchema = z.object({
  imported: z.string().transform((text) => ImportedSessionSchema.parse(JSON.parse(text))),
});

/** A session that arrives held: nothing may use it yet. */
export interface HeldArrival {
  /** Part of the transaction that makes the session. An error undoes it. */
  readonly onInsert: (imported: Imported, sha256: string) => void;
}

interface Open {
  /** Null: its connection has ended, and its client may come back. */
  owner: object | null;
  readonly what:
    | { readonly export: BundleExport; readonly isHeld: boolean }
    | { readonly import: BundleImport; readonly arrival: HeldArrival | undefined };
  /** The last call, which the next one waits for. */
  last: Promise<unknown>;
  idle: NodeJS.Timeout;
}

/** Exports and imports of sessions as bundles. Each belongs to the connection that began it, and ends with it; that of a move may go on over another one. */
export class Bundles {
  readonly #options: BundlesOptions;
  readonly #open = new Map<string, Open>();
  /** Commits that run, by their `opId`: a client whose connection broke asks again. */
  readonly #committing = new Map<string, Promise<ImportedSession>>();
  #beginning = 0;
  #key: HostKey | null = null;

  constructor(options: BundlesOptions) {
    this.#options = options;
  }

  /** Exports what a session is now. */
  async exportSession(
    reference: string,
    opId: string | undefined,
    owner: object,
  ): Promise<{ bundle: string; snapshot: SnapshotRow; keyId: string }> {
    const { snapshotService } = this.#options;
    const session = requirePresent(snapshotService.findSession(reference));
    const { row: snapshot } = await snapshotService.create(session, { opId });
    return await this.#export(session, snapshot, true, owner);
  }

  /** Exports what the session of a snapshot was then. */
  async exportSnapshot(
    id: string,
    owner: object,
  ): Promise<{ bundle: string; snapshot: SnapshotRow; keyId: string }> {
    const snapshot = this.#options.snapshotService.find(id);
    const session = requirePresent(this.#options.snapshotService.findSession(snapshot.sessionId));
    return await this.#export(session, snapshot, false, owner);
  }

  /**
   * Exports a session that nothing uses, as it is, with a snapshot of all its files. `onEnd` gets the SHA-256 of the file before its
   * last bytes are returned.
   */
  async exportHeld(
    session: SessionRow,
    snapshot: SnapshotRow,
    owner: object,
    onEnd: (sha256: string) => void,
  ): Promise<string> {
    return (await this.#export(session, snapshot, true, owner, onEnd)).bundle;
  }

  /** The next bytes. At the end the export is over. */
  async read(bundle: string, owner: object): Promise<{ bytes: Buffer; end: boolean }> {
    return await this.#call(bundle, owner, async ({ what }) => {
      if (!('export' in what)) throw ended('it is an import');
      const read = await what.export.read();
      // The last bytes of a move may have to be read again: its client ends it.
      if (read.end && !what.isHeld) await this.abort(bundle, owner);
      return read;
    });
  }

  /** `key`: the id of the key that has to have signed it; default: that of this home. Errors: `not_found`, `overloaded`. */
  async beginImport(
    { profile, name, key }: { profile: string; name?: string | undefined; key?: string | undefined },
    owner: object,
    arrival?: HeldArrival,
  ): Promise<string> {
    this.#options.profiles.getOrThrow(profile);
    return await this.#begin(owner, async () => {
      const own = this.#openKey().keyId;
      const request = { profile, name, key: key ?? own, isOwn: (key ?? own) === own };
      return { import: await this.#options.imports.begin(request), arrival };
    });
  }

  async append(bundle: string, owner: object, bytes: Buffer): Promise<void> {
    await this.#call(bundle, owner, async ({ what }) => {
      if (!('import' in what)) throw ended('it is an export');
      await what.import.append(bytes);
    });
  }

  /** A repeated `opId` returns the same session. */
  async commit(bundle: string, owner: object, opId: string | undefined): Promise<ImportedSession> {
    const earlier = this.#options.operations.findResult(opId, COMMIT);
    if (earlier !== null) return CommittedSchema.parse(earlier.result).imported;
    const running = opId === undefined ? undefined : this.#committing.get(opId);
    if (running !== undefined) return await running;
    const committing = this.#call(bundle, owner, ({ what }) => {
      if (!('import' in what)) throw ended('it is an export');
      // It goes on when its connection ends.
      this.#forget(bundle);
      return this.#commit(what.import, what.arrival, opId);
    });
    if (opId === undefined) return await committing;
    this.#committing.set(opId, committing);
    try {
      return await committing;
    } finally {
      this.#committing.delete(opId);
    }
  }

  async #commit(
    arriving: BundleImport,
    arrival: HeldArrival | undefined,
    opId: string | undefined,
  ): Promise<ImportedSession> {
    const { operations, hydration, onImported } = this.#options;
    const ownKey = this.#openKey().keyId;
    const imported = await arriving.commit((insert, sha256) => {
      let inserted: Imported | undefined;
      operations.runOnce(opId, COMMIT, () => {
        inserted = insert();
        arrival?.onInsert(inserted, sha256);
        return { imported: JSON.stringify(summaryOf(inserted, ownKey)) };
      });
      if (inserted === undefined) throw new HoldfastError('conflict', 'The session was imported already');
      return inserted;
    });
    if (arrival === undefined) {
      hydration.start(imported.row.id);
      onImported(imported.row.id);
    }
    return summaryOf(imported, ownKey);
  }

  /** Its connection has ended. It is kept for a while, unless others need its place. */
  leave(bundle: string, owner: object): void {
    const open = this.#open.get(bundle);
    if (open?.owner !== owner) return;
    open.owner = null;
    clearTimeout(open.idle);
    open.idle = this.#endAfter(RESUME_MS, bundle);
  }

  /**
   * Goes on over another connection; the first one may not have been seen to end. Returns the offset of the next bytes. Errors:
   * `interrupted`.
   */
  async resume(bundle: string, owner: object): Promise<number> {
    const open = this.#open.get(bundle);
    if (open === undefined) throw ended('it was given up, or an earlier part was refused');
    open.owner = owner;
    return await this.#call(bundle, owner, ({ what }) =>
      Promise.resolve('export' in what ? what.export.rewind() : what.import.received),
    );
  }

  /** Does nothing if it has ended. */
  async abort(bundle: string, owner: object): Promise<void> {
    if (this.#open.get(bundle)?.owner === owner) await this.#end(bundle);
  }

  async close(): Promise<void> {
    for (const bundle of [...this.#open.keys()]) await this.#end(bundle);
  }

  async #end(bundle: string): Promise<void> {
    const open = this.#open.get(bundle);
    if (open === undefined) return;
    this.#forget(bundle);
    if ('export' in open.what) await open.what.export.close();
    else await open.what.import.abort();
  }

  async #export(
    session: SessionRow,
    snapshot: SnapshotRow,
    isNow: boolean,
    owner: object,
    onEnd?: (sha256: string) => void,
  ): Promise<{ bundle: string; snapshot: SnapshotRow; keyId: string }> {
    const key = this.#openKey();
    const bundle = await this.#begin(owner, async () => ({
      export: await this.#options.exports.begin({ session, snapshot, isNow }, key, onEnd),
      isHeld: onEnd !== undefined,
    }));
    return { bundle, snapshot, keyId: key.keyId };
  }

  async #begin(owner: object, open: () => Promise<Open['what']>): Promise<string> {
    if (this.#open.size + this.#beginning >= MOST_AT_ONCE)
      for (const [bundle, left] of [...this.#open]) if (left.owner === null) await this.#end(bundle);
    if (this.#open.size + this.#beginning >= MOST_AT_ONCE) {
      throw new HoldfastError('overloaded', 'Nothing was exported or imported', {
        why: `${MOST_AT_ONCE} other exports and imports are under way`,
        next: 'try again when one of them has ended',
      });
    }
    this.#beginning += 1;
    try {
      const what = await open();
      const bundle = randomBytes(16).toString('hex');
      this.#open.set(bundle, {
        owner,
        what,
        last: Promise.resolve(),
        idle: this.#endAfter(IDLE_MS, bundle),
      });
      return bundle;
    } finally {
      this.#beginning -= 1;
    }
  }

  /** Calls may overlap; they take effect in their order. A failure ends it. */
  async #call<T>(bundle: string, owner: object, act: (open: Open) => Promise<T>): Promise<T> {
    const open = this.#open.get(bundle);
    if (open?.owner !== owner) throw ended('its connection broke, or an earlier part was refused');
    clearTimeout(open.idle);
    const mine = open.last.then(() => act(open));
    open.last = mine.catch(() => undefined);
    try {
      const result = await mine;
      if (this.#open.get(bundle) === open) {
        clearTimeout(open.idle);
        open.idle = this.#endAfter(isLeft(open) ? RESUME_MS : IDLE_MS, bundle);
      }
      return result;
    } catch (error) {
      await this.abort(bundle, owner);
      throw error;
    }
  }

  #forget(bundle: string): void {
    clearTimeout(this.#open.get(bundle)?.idle);
    this.#open.delete(bundle);
  }

  #endAfter(ms: number, bundle: string): NodeJS.Timeout {
    // What cannot be removed now is garbage for the next supervisor.
    return setTimeout(() => void this.#end(bundle).catch(() => undefined), ms).unref();
  }

  #openKey(): HostKey {
    this.#key ??= openHostKey(this.#options.home.hostKey);
    return this.#key;
  }
}

/** A function, because the compiler takes what it has compared for constant. */
function isLeft({ owner }: Open): boolean {
  return owner === null;
}

function summaryOf({ row, snapshot, bundle }: Imported, ownKey: string): ImportedSession {
  const { home, keyId, events, contents } = bundle;
  return {
    ...{ sessionId: row.id, snapshotId: snapshot.id },
    signedBy: { keyId, home, own: keyId === ownKey },
    ...{ events: events.length, contents: contents.size },
  };
}

function requirePresent(session: SessionRow): SessionRow {
  if (session.status !== 'deleted') return session;
  throw new HoldfastError('not_found', `Session ${session.name} cannot be exported`, {
    why: 'it was deleted, and its prompts and outputs with it',
    next: 'create a session from its last snapshot with `holdfast snapshot fork`, and export that one',
  });
}

function ended(why: string): HoldfastError {
  return new HoldfastError('interrupted', 'The export or import has ended', { why, next: 'begin again' });
}
