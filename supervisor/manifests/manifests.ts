import { credentialsOf } from '../../protocol/credentials.ts';
import type { ProjectOrigin } from '../../protocol/deploy.ts';
import { sealEnvelope } from '../../protocol/envelope.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import {
  ENVELOPE_CHARACTERS,
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
import type { EventLog } from '../history/event-log.ts';
import type { Home } from '../store/home.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { Snapshots } from '../store/snapshots.ts';
import { summarizeHistory } from './history-summary.ts';
import { type HostKey, openHostKey } from './host-key.ts';

const PAGE_EVENTS = 1000;
const TEXT_CHARACTERS = 4096;
type Made = Params<'handoff/record'>;

export interface ManifestsOptions {
  readonly home: Pick<Home, 'id' | 'hostKey'>;
  readonly events: EventLog;
  readonly contents: Contents;
  readonly profiles: Pick<Profiles, 'get'>;
  readonly snapshots: Pick<Snapshots, 'newest'>;
  /** The version of a session's memory; 0 for none. */
  readonly memoryVersion: (sessionId: string) => number;
  readonly baseOf: (session: SessionRow) => {
    readonly root: string;
    readonly origin: ProjectOrigin | null;
    readonly folder: string;
    readonly isExact: boolean;
  } | null;
  readonly ids: Ids;
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
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
    const manifest = await this.#make(session, { id: ids.next('man'), reason: 'now', handoff: null });
    const { snapshot, history } = manifest;
    return this.#sign(manifest, [
      ...(snapshot === null ? [] : [{ name: 'workspace', digest: { holdfastTree: snapshot.root } }]),
      { name: 'history', digest: { holdfastEvents: history.hash } },
    ]);
  }

  /** One that is kept. Errors: `not_found`. */
  showKept(session: SessionRow, manifestId: string): Envelope {
    const { events, contents } = this.#options;
    for (let after = 0; ;) {
      const page = events.read(session.id, { type: 'manifest.made', after, limit: PAGE_EVENTS });
      for (const { data } of page) {
        const made = MANIFEST_EVENTS['manifest.made'].parse(data);
        if (made.manifestId !== manifestId || made.content === null) continue;
        const { part } = contents.read(session.id, made.content.sha256, 0, ENVELOPE_CHARACTERS);
        return EnvelopeSchema.parse(JSON.parse(part.toString('utf8')));
      }
      const last = page.at(-1);
      if (last === undefined) break;
      after = last.seq;
    }
    throw new HoldfastError('not_found', `${session.name} has no manifest ${manifestId}`, {
      why: 'only those of finished handoffs are kept; if it could not be made, the log of the supervisor says why',
      next: 'make one of what is there now with `holdfast manifest show SESSION`',
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
      const manifest = await this.#make(session, { id: manifestId, reason: 'handoff', handoff: handoffId });
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

  async #make(session: SessionRow, what: Pick<Manifest, 'id' | 'reason' | 'handoff'>): Promise<Manifest> {
    const { home, events, profiles, snapshots, memoryVersion, baseOf, now } = this.#options;
    const head = { ...events.head(session.id) };
    const snapshot = snapshots.newest(session.id);
    const base = baseOf(session);
    const profile = profiles.get(session.profile);
    const memory = memoryVersion(session.id);
    const summary = await summarizeHistory({
      events,
      sessionId: session.id,
      head,
      clock: () => performance.now(),
    });
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
      ...summary,
    };
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

function bounded(text: string | null): string | null {
  return text === null ? null : text.slice(0, TEXT_CHARACTERS);
}
