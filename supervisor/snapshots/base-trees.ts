import { posix } from 'node:path';
import type { ProjectOrigin } from '../../protocol/deploy.ts';
import { hasTemplate, seedOf } from '../../protocol/profile.ts';
import type { Log } from '../base/log.ts';
import { readSourceRecord } from '../profiles/source-record.ts';
import type { Home } from '../store/home.ts';
import type { Profiles } from '../store/profiles.ts';
import type { SessionRow, Sessions } from '../store/sessions.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import type { WorkspaceBases } from '../store/workspace-bases.ts';
import type { SnapshotCreation } from './snapshot-creation.ts';
import type { SnapshotService } from './snapshot-service.ts';

/** The first use of a session waits at most this long for the scan of what it begins with. */
const SCAN_TIMEOUT_MS = 60_000;
/** A chain of forks is never this long. */
const MAX_FORKS = 1000;

export interface BaseTreesOptions {
  readonly home: Pick<Home, 'deployedSource'>;
  readonly bases: WorkspaceBases;
  readonly profiles: Profiles;
  readonly sessions: Sessions;
  readonly snapshots: Snapshots;
  readonly snapshotCreation: Pick<SnapshotCreation, 'createLocked' | 'storeTreeLocked'>;
  readonly tryCreate: SnapshotService['tryCreate'];
  readonly log: Log;
  /** ms since 1970. */
  readonly now: () => number;
}

/** What changes are compared with. `isExact`: no process of the agent had run. */
export interface BaseTree {
  /** Hash of the root tree, hexadecimal. */
  readonly root: string;
  readonly origin: ProjectOrigin | null;
  /** The folder of the project that the workspace holds, with a slash at the end; empty for the whole project. */
  readonly folder: string;
  readonly isExact: boolean;
}

/** Keeps the tree that each workspace begins with, as a snapshot too, so that everything an agent does later is a change. */
export class BaseTrees {
  readonly #options: BaseTreesOptions;

  constructor(options: BaseTreesOptions) {
    this.#options = options;
  }

  /**
   * Stores the tree of a workspace that has just been seeded, or that begins empty. The caller holds the session's mutex; the sidecar runs, and
   * no process of the agent. Never rejects: a session can be used without a base, and a handoff says so.
   */
  async record(session: SessionRow): Promise<void> {
    const { home, bases, profiles, snapshots, snapshotCreation, log, now } = this.#options;
    const signal = AbortSignal.timeout(SCAN_TIMEOUT_MS);
    const profile = profiles.get(session.profile);
    const seed = profile === null ? null : seedOf(profile.config);
    if (session.throwaway || profile === null) return;
    const template = hasTemplate(profile.config);
    // With a template, the snapshot after the setup is the one at the start.
    const isStart = session.persistent && !template && snapshots.newest(session.id) === null;
    if (seed === null && !template) {
      if (isStart) await this.#createStart(session, signal);
      return;
    }
    try {
      const { origin } = await readSourceRecord(home.deployedSource(profile.name, profile.version), {
        limit: 1,
      });
      const folder = posix.join(seed?.folder ?? '', '/');
      const base = {
        sessionId: session.id,
        lineage: session.lineage,
        codeVersion: profile.version,
        // The files of a repository that was cloned are not those of the project.
        origin: seed === null ? null : origin,
        folder: folder === './' ? '' : folder,
      };
      const keep = (root: string): void => bases.put({ ...base, root, seededAt: now() });
      const start = isStart ? await this.#createStart(session, signal) : null;
      if (start !== null) keep(start.root);
      else await snapshotCreation.storeTreeLocked(session, keep, signal);
    } catch (error) {
      log.warn('what a workspace begins with could not be stored', { session: session.id, error });
    }
  }

  /** The first snapshot of the session. Nothing else scans: whatever does, waits for the session's mutex before. */
  #createStart(session: SessionRow, signal: AbortSignal): Promise<SnapshotRow | null> {
    const { tryCreate, snapshotCreation } = this.#options;
    return tryCreate(session, 'start', () =>
      snapshotCreation.createLocked(session, { reason: 'start', signal }),
    );
  }

  /**
   * The tree that the session's workspace, or that of the session it was forked from, began with; otherwise its oldest
   * snapshot. Null with neither.
   */
  find(session: SessionRow): BaseTree | null {
    const { bases, sessions, snapshots } = this.#options;
    let oldest: SnapshotRow | null = null;
    let at: SessionRow | null = session;
    for (let forks = 0; at !== null && forks < MAX_FORKS; forks += 1) {
      const base = bases.get(at.id);
      if (base !== null && base.lineage === session.lineage) {
        const { root, origin, folder } = base;
        return { root, origin, folder, isExact: true };
      }
      oldest = snapshots.listBySession(at.id)[0] ?? oldest;
      const source: SnapshotRow | null = at.origin === null ? null : snapshots.get(at.origin);
      if (source !== null) oldest = source.lineage === session.lineage ? source : oldest;
      at = source === null || source.sessionId === at.id ? null : sessions.get(source.sessionId);
    }
    return oldest === null ? null : { root: oldest.root, origin: null, folder: '', isExact: false };
  }
}
