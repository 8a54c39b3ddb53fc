import { credentialsOf } from '../../protocol/credentials.ts';
import type { ProjectOrigin } from '../../protocol/deploy.ts';
import { sealEnvelope } from '../../protocol/envelope.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import {
  ENVELOPE_CHARACTERS,
  MANIFEST_LIMITS,
  type Envelope,
  EnvelopeSchema,
  MANIFEST_EVENTS,
  type Manifest,
  type ManifestStatement,
  ManifestStatementSchema,
  statementOf,
} from '../../protocol/manifest.ts';
import type { Params, Result } from '../../protocol/methods.ts';
import { JSON_TEXT } from '../../protocol/contents.ts';
import type { Ids } from '../base/ids.ts';
import { isoTime } from '../base/iso-time.ts';
import type { Log } from '../base/log.ts';
import type { Contents } from '../history/contents.ts';
import type { EventLog, Head } from '../history/event-log.ts';
import { newestImport } from '../history/newest-import.ts';
import type { Home } from '../store/home.ts';
import type { KeptManifestRows } from '../store/kept-manifests.ts';
import type { Profiles } from '../store/profiles.ts';
import type { ReviewRows } from '../store/reviews.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import { summarizeHistory } from './history-summary.ts';
import { agentCopyOf } from './agent-copy.ts';
import { type HostKey, openHostKey } from './host-key.ts';

const PAGE_EVENTS = 1000;
const TEXT_CHARACTERS = 4096;
const PATH_CHARACTERS = 300;

/** An event that a manifest is made for by itself. */
export interface ByItself {
  readonly reason: 'snapshot' | 'resume';
  readonly snapshotId: string | null;
  /** The event. */
  readonly head: Head;
}
type Made = Params<'handoff/record'>;

export interface ManifestsOptions {
  readonly home: Pick<Home, 'id' | 'hostKey'>;
  readonly events: EventLog;
  readonly contents: Contents;
  readonly profiles: Pick<Profiles, 'get'>;
  readonly snapshots: Pick<Snapshots, 'newest' | 'get'>;
  /** The version of a session's memory; 0 for none. */
  readonly memoryVersion: (sessionId: string) => number;
  readonly baseOf: (session: SessionRow) => {
    readonly root: string;
    readonly origin: ProjectOrigin | null;
    readonly folder: string;
    readonly isExact: boolean;
  } | null;
  readonly kept: KeptManifestRows;
  readonly reviewRows: Pick<ReviewRows, 'findOpen' | 'newestEnded' | 'countDecided'>;
  /** Where programs of the session's sandbox listen; null if none runs. Never rejects, and soon. */
  readonly openPorts: (session: SessionRow) => Promise<Manifest['ports']>;
  /** Writes the agent's copy where a sandbox runs. Never rejects, and soon. */
  readonly writeAgentCopy: (session: SessionRow, copy: Buffer) => Promise<void>;
  /** What prepared an image for a profile, by the image's name. */
  readonly setupOf: (profile: string, image: string) => Manifest['setup'];
  /** The files that differ between two trees; null if they cannot be compared. Never rejects. */
  readonly changesBetween: (
    session: SessionRow,
    before: string,
    after: string,
  ) => Promise<{ readonly paths: readonly string[]; readonly complete: boolean } | null>;
  readonly ids: Ids;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

/** What a manifest is made for, and the moment that it is about. */
interface Occasion extends Pick<Manifest, 'id' | 'reason' | 'handoff'> {
  readonly artifact?: string | null;
  readonly head: Head;
  readonly snapshot: SnapshotRow | null;
  readonly limits?: { readonly events: number; readonly readMs: number };
}

/** Signed statements of what sessions did. Those of handoffs are kept with the history. */
export class Manifests {
  readonly #options: ManifestsOptions;
  #key: HostKey | null = null;

  constructor(options: ManifestsOptions) {
    this.#options = options;
  }

  /** The public key of this home. Errors: those of `openHostKey`. */
  key(): Result<'manifest/key'> {
    const { publicKey, keyId } = this.#openKey();
    return { publicKey, keyId };
  }

  /** Makes a manifest of what is there now; it is not kept. */
  async show(session: SessionRow): Promise<Envelope> {
    const { ids } = this.#options;
    const what = { id: ids.next('man'), reason: 'now' as const, handoff: null };
    const manifest = await this.#make(session, { ...what, ...this.#present(session) });
    return this.#sign(manifest, subjectsOf(manifest));
  }

  /** Makes the manifest of a snapshot or a resume, as of that event, and keeps it; the agent gets a copy. */
  async keep(session: SessionRow, occasion: ByItself): Promise<void> {
    const { ids, kept, snapshots, now, writeAgentCopy } = this.#options;
    const { reason, snapshotId, head } = occasion;
    // Another home wrote that event, and this one signs nothing about it.
    if (head.seq <= (newestImport(this.#options.events, session.id)?.seq ?? 0)) return;
    const id = ids.next('man');
    const snapshot = snapshotId === null ? snapshots.newest(session.id) : snapshots.get(snapshotId);
    const { eventsByItself: events, readMsByItself: readMs } = MANIFEST_LIMITS;
    const limits = { events, readMs };
    const manifest = await this.#make(session, { id, reason, handoff: null, head, snapshot, limits });
    const envelope = this.#sign(manifest, subjectsOf(manifest));
    kept.insert(session.id, { id, reason, snapshotId, madeAt: now() }, JSON.stringify(envelope));
    await writeAgentCopy(session, agentCopyOf(manifest));
  }

  /** Those that are kept, the newest first. */
  list(session: SessionRow): Result<'manifest/list'> {
    const { events, kept } = this.#options;
    const byItself = kept.listOf(session.id).map(({ id, reason, snapshotId, madeAt }) => ({
      ...{ id, reason, madeAt: isoTime(madeAt), handoff: null, snapshot: snapshotId },
    }));
    const ofHandoffs = events
      .newest(session.id, 'manifest.made', PAGE_EVENTS)
      .map(({ data, at }) => ({ at, ...MANIFEST_EVENTS['manifest.made'].data.parse(data) }))
      .map(({ manifestId: id, handoffId: handoff, at: madeAt }) => ({
        ...{ id, reason: 'handoff' as const, madeAt, handoff, snapshot: null },
      }));
    const byAge = (a: { madeAt: string }, b: { madeAt: string }): number => (a.madeAt < b.madeAt ? 1 : -1);
    return { manifests: [...byItself, ...ofHandoffs].sort(byAge) };
  }

  /** One that is kept. Errors: `not_found`. */
  showKept(session: SessionRow, manifestId: string): Envelope {
    const { events, contents, kept } = this.#options;
    const byItself = kept.find(session.id, manifestId);
    if (byItself !== null) return EnvelopeSchema.parse(JSON.parse(byItself));
    for (let after = 0; ;) {
      const page = events.read(session.id, { type: 'manifest.made', after, limit: PAGE_EVENTS });
      for (const { data } of page) {
        const made = MANIFEST_EVENTS['manifest.made'].data.parse(data);
        if (made.manifestId !== manifestId || made.content === null) continue;
        const { part } = contents.read(session.id, made.content.sha256, 0, ENVELOPE_CHARACTERS);
        return EnvelopeSchema.parse(JSON.parse(part.toString('utf8')));
      }
      const last = page.at(-1);
      if (last === undefined) break;
      after = last.seq;
    }
    throw new HoldfastError('not_found', `${session.name} has no manifest ${manifestId}`, {
      why: 'those of handoffs are kept, and the newest of those of snapshots and resumes; if it could not be made, the log of the supervisor says why',
      next: 'list them with `holdfast manifest list SESSION`',
    });
  }

  /**
   * Makes the manifest of a handoff. What it resolves with keeps it: call it in the transaction that records the handoff. Never
   * rejects: the handoff was made already, and a manifest that could not be made is a line in the log.
   */
  async prepare(session: SessionRow, made: Made): Promise<() => void> {
    const { events, contents, log } = this.#options;
    const { manifest: manifestId, handoff: handoffId, tree, commit, target } = made;
    try {
      const what = { id: manifestId, reason: 'handoff' as const, handoff: handoffId };
      const manifest = await this.#make(session, { ...what, ...this.#present(session) });
      const subject = [
        ...(tree === null ? [] : [{ name: 'tree', digest: { gitTree: tree } }]),
        ...(commit === null ? [] : [{ name: 'commit', digest: { gitCommit: commit } }]),
      ];
      const envelope = this.#sign(
        manifest,
        subject.length > 0 ? subject : [{ name: 'workspace', digest: { holdfastTree: target } }],
      );
      const { keyId } = this.#openKey();
      return () => {
        const content = contents.insert(session.id, Buffer.from(JSON.stringify(envelope)), JSON_TEXT);
        events.append(session.id, [
          { type: 'manifest.made', data: { manifestId, handoffId, keyId, content } },
        ]);
      };
    } catch (error) {
      log.error('the manifest of a handoff could not be made', { session: session.id, manifestId, error });
      return () => undefined;
    }
  }

  /** Makes the statement that is kept with an artifact. `subject`: what it is about. Errors: those of `openHostKey`. */
  async ofArtifact(
    session: SessionRow,
    artifact: string,
    subject: ManifestStatement['subject'],
  ): Promise<Envelope> {
    const what = { id: this.#options.ids.next('man'), reason: 'artifact' as const, handoff: null, artifact };
    return this.#sign(await this.#make(session, { ...what, ...this.#present(session) }), subject);
  }

  #present({ id }: SessionRow): Pick<Occasion, 'head' | 'snapshot'> {
    const { events, snapshots } = this.#options;
    return { head: { ...events.head(id) }, snapshot: snapshots.newest(id) };
  }

  async #make(
    session: SessionRow,
    { head, snapshot, limits, artifact = null, ...what }: Occasion,
  ): Promise<Manifest> {
    const { home, events, profiles, memoryVersion, baseOf, setupOf, changesBetween, openPorts, now } =
      this.#options;
    const ports = await openPorts(session);
    const base = baseOf(session);
    const profile = profiles.get(session.profile);
    const memory = memoryVersion(session.id);
    const summary = await summarizeHistory({
      events,
      sessionId: session.id,
      head,
      clock: () => performance.now(),
      ...(limits === undefined ? {} : { limits }),
    });
    const review = this.#review(session);
    const setup = summary.image === null ? null : setupOf(session.profile, summary.image.name);
    const changed =
      base === null || snapshot === null ? null : await changesBetween(session, base.root, snapshot.root);
    return {
      ...what,
      madeAt: isoTime(now()),
      home: home.id,
      session: {
        id: session.id,
        name: session.name,
        profile: session.profile,
        createdAt: isoTime(session.createdAt),
        forkedFrom: session.origin,
        model: bounded(session.model),
      },
      memory,
      snapshot:
        snapshot === null ? null : { id: snapshot.id, root: snapshot.root, at: isoTime(snapshot.createdAt) },
      base:
        base === null
          ? null
          : {
              root: base.root,
              exact: base.isExact,
              folder: base.folder.slice(0, TEXT_CHARACTERS),
              remote: bounded(base.origin?.remote ?? null),
              branch: bounded(base.origin?.branch ?? null),
              commit: base.origin?.head ?? null,
            },
      credentials:
        profile === null
          ? []
          : credentialsOf(profile.config).map(({ name, host, secret }) => ({ name, host, secret })),
      review,
      changes: changed === null ? null : changesOf(changed),
      setup,
      ports,
      artifact,
      ...summary,
    };
  }

  #review({ id: sessionId }: SessionRow): Manifest['review'] {
    const { reviewRows } = this.#options;
    const row = reviewRows.findOpen(sessionId) ?? reviewRows.newestEnded(sessionId);
    return row === null
      ? null
      : { id: row.id, ended: row.endedAt !== null, ...reviewRows.countDecided(row.id) };
  }

  #sign(manifest: Manifest, subject: ManifestStatement['subject']): Envelope {
    const statement = ManifestStatementSchema.parse(statementOf(manifest, subject));
    return sealEnvelope(Buffer.from(JSON.stringify(statement)), this.#openKey().privateKey);
  }

  #openKey(): HostKey {
    this.#key ??= openHostKey(this.#options.home.hostKey);
    return this.#key;
  }
}

function subjectsOf({ snapshot, history }: Manifest): ManifestStatement['subject'] {
  return [
    ...(snapshot === null ? [] : [{ name: 'workspace', digest: { holdfastTree: snapshot.root } }]),
    { name: 'history', digest: { holdfastEvents: history.hash } },
  ];
}

function changesOf({
  paths,
  complete,
}: {
  readonly paths: readonly string[];
  readonly complete: boolean;
}): Manifest['changes'] {
  const listed = paths.slice(0, MANIFEST_LIMITS.changes).map((path) => path.slice(0, PATH_CHARACTERS));
  return { counted: paths.length, complete, listed };
}

function bounded(text: string | null): string | null {
  return text === null ? null : text.slice(0, TEXT_CHARACTERS);
}
