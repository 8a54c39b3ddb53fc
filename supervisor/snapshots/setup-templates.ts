import { statfs } from 'node:fs/promises';
import type { Duplex } from 'node:stream';
import { keptInHome } from '../../protocol/agent-home.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { hasTemplate } from '../../protocol/profile.ts';
import { SIGN_IN_FILES } from '../../protocol/presets/index.ts';
import { OBJECT_KINDS, parseHash } from '../../snapshot-format/objects.ts';
import { parseRoot } from '../../snapshot-format/entries.ts';
import type { ScanResult, StateScope } from '../../snapshot-format/sidecar-calls.ts';
import { IN_SANDBOX } from '../../sidecar/wire.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Ids } from '../base/ids.ts';
import type { EventLog } from '../history/event-log.ts';
import type { HomeTemplates } from '../sandboxes/dispatches.ts';
import type { Home } from '../store/home.ts';
import type { ProfileRow } from '../store/profiles.ts';
import type { SessionRow } from '../store/sessions.ts';
import type { SetupRows, SetupTemplate } from '../store/setups.ts';
import type { SnapshotRow, Snapshots } from '../store/snapshots.ts';
import { SidecarClient } from '../workspace/sidecar-client.ts';
import type { FilledHome, WorkspaceTemplates } from '../workspace/seeding.ts';
import { SnapshotConnection } from './connection.ts';
import { copyPacks } from './store/copy-packs.ts';
import { IncomingPacks, MIN_FREE_MIB } from './store/incoming-packs.ts';
import type { LineageStores } from './store/lineage-stores.ts';
import { type TreeFile, treeFiles } from './tree-files.ts';

const MIB = 2 ** 20;
const HOME_SUFFIX = '-home';
/** Ids of setups begin with it, and those of sessions never do. */
const SETUP_PREFIX = 'setup-';

export interface SetupTemplatesOptions {
  readonly home: Pick<Home, 'store'>;
  readonly stores: LineageStores;
  readonly snapshots: Pick<Snapshots, 'insert' | 'newest'>;
  readonly events: Pick<EventLog, 'append' | 'head'>;
  readonly ids: Ids;
  readonly dial: (sandboxId: string) => Promise<Duplex>;
  readonly rows: Pick<SetupRows, 'findByImage'>;
  /** ms since 1970. */
  readonly now: () => number;
}

interface CaptureOptions {
  readonly kept: readonly string[];
  readonly inspect: (files: AsyncIterable<TreeFile>) => Promise<void>;
  readonly signal: AbortSignal;
}

/** Whether a store is that of a setup, and not of a session and its forks. */
export function isSetupStore(lineage: string): boolean {
  return lineage.startsWith(SETUP_PREFIX);
}

/**
 * What the commands of setups left: a tree of the workspace and one of HOME, each in a store of the setup's own. A session gets copies
 * of the packs, so that it shares no store with its setup or with other sessions.
 */
export class SetupTemplates implements WorkspaceTemplates, HomeTemplates {
  readonly #options: SetupTemplatesOptions;

  constructor(options: SetupTemplatesOptions) {
    this.#options = options;
  }

  /**
   * Stores what is in the workspace and HOME of a setup. Its sidecar runs, and nothing else of it. `kept`: paths of HOME that are not
   * laid out again in later sandboxes. Sign-in files are left out. Errors: those of scans, of `inspect`, and the signal's reason.
   */
  async capture(setupId: string, { kept, inspect, signal }: CaptureOptions): Promise<SetupTemplate> {
    const connection = await this.#connect(setupId);
    try {
      const all = homeScope([]);
      const home = await this.#store(connection, setupId + HOME_SUFFIX, all, signal);
      const rest = await this.#store(connection, setupId + HOME_SUFFIX, homeScope(kept), signal);
      const workspace = await this.#store(connection, setupId, null, signal);
      await this.#inspect(setupId, IN_SANDBOX.workspace, workspace, inspect, signal);
      await this.#inspect(setupId + HOME_SUFFIX, IN_SANDBOX.home, home, inspect, signal);
      return { workspace: extentOf(workspace), home: extentOf(home), rest: rest.root };
    } finally {
      connection.close();
    }
  }

  async remove(setupId: string): Promise<void> {
    const { stores } = this.#options;
    await stores.remove(setupId, () => true);
    await stores.remove(setupId + HOME_SUFFIX, () => true);
  }

  /** The ids of setups of which something is stored. */
  async list(): Promise<string[]> {
    const all = (await this.#options.stores.lineages()).filter(isSetupStore);
    return [...new Set(all.map((name) => name.replace(/-home$/, '')))];
  }

  has({ config }: Pick<ProfileRow, 'config'>): boolean {
    return hasTemplate(config);
  }

  async fill(row: SessionRow, profile: ProfileRow, filledHome: FilledHome): Promise<void> {
    const { setupId, template } = this.#templateOf(profile);
    const { workspace, home } = template;
    const isHomeNew = filledHome.isNew || row.homeGeneration === 0 || (await this.#isHomeEmpty(row.id));
    if (isHomeNew && !filledHome.isNew) filledHome.markNew();
    const connection = await this.#connect(row.id);
    try {
      await this.#restore(connection, setupId, workspace.root, null);
      if (isHomeNew) await this.#restore(connection, setupId + HOME_SUFFIX, home.root, homeScope([]));
    } finally {
      connection.close();
    }
    await failpoint('seed.after-template');
  }

  async adopt(row: SessionRow, profile: ProfileRow) {
    const { setupId, template } = this.#templateOf(profile);
    const { workspace } = template;
    // A session of one turn has no snapshots.
    if (!row.throwaway) await this.#copyPacks(setupId, row.lineage, workspace.root);
    const record = (): void => {
      if (!row.throwaway) this.#insertSnapshot(row, workspace);
    };
    return { files: workspace.files, bytes: workspace.bytes, record };
  }

  bytesOf(profile: ProfileRow): number {
    const { workspace, home } = this.#templateOf(profile).template;
    return workspace.bytes + home.bytes;
  }

  async fillHome(row: SessionRow, profile: ProfileRow): Promise<void> {
    if (!this.has(profile)) return;
    const { setupId, template } = this.#templateOf(profile);
    const connection = await this.#connect(row.id);
    try {
      const scope = homeScope(keptInHome(profile.config.agent));
      await this.#restore(connection, setupId + HOME_SUFFIX, template.rest, scope);
    } finally {
      connection.close();
    }
  }

  #connect(sandboxId: string): Promise<SnapshotConnection> {
    return SnapshotConnection.open(() => this.#options.dial(sandboxId), sandboxId);
  }

  async #isHomeEmpty(sessionId: string): Promise<boolean> {
    const client = await SidecarClient.connect(() => this.#options.dial(sessionId), sessionId);
    try {
      const { files, directories } = await client.homeUsage();
      return files + directories === 0;
    } finally {
      client.close();
    }
  }

  #templateOf({ name, image }: ProfileRow): { setupId: string; template: SetupTemplate } {
    const row = this.#options.rows.findByImage(image);
    const template = row?.template ?? null;
    if (row !== null && template !== null) return { setupId: row.id, template };
    throw new HoldfastError('not_found', `What the setup of ${name} left is not there`, {
      next: `run it again: \`holdfast setup run ${name}\``,
    });
  }

  async #store(
    connection: SnapshotConnection,
    lineage: string,
    state: StateScope | null,
    signal: AbortSignal,
  ): Promise<ScanResult> {
    return await this.#options.stores.use(lineage, async (store) => {
      const incoming = new IncomingPacks(store, () => this.#freeBytes());
      try {
        const params = { base: null, budgetBytes: null, frozen: true, isBaseSuspect: false };
        const scan = await connection.scan({ ...params, awaitsLeases: false, state }, store, incoming, {
          signal,
        });
        if (!scan.complete || scan.missing > 0)
          throw new HoldfastError('setup_failed', 'What the setup left cannot be stored', {
            why: `files could not be read, such as ${scan.missingPaths[0] ?? 'one'}`,
          });
        await incoming.publish(scan.root);
        return scan;
      } finally {
        await incoming.close();
      }
    });
  }

  async #inspect(
    lineage: string,
    top: string,
    { root }: ScanResult,
    inspect: CaptureOptions['inspect'],
    signal: AbortSignal,
  ): Promise<void> {
    await this.#options.stores.use(lineage, (store) =>
      inspect(treeFiles(store, parseHash(root), top, signal)),
    );
  }

  async #restore(
    connection: SnapshotConnection,
    lineage: string,
    root: string,
    state: StateScope | null,
  ): Promise<void> {
    const params = { root, path: null, dryRun: false, scannedRoot: null, state };
    await this.#options.stores.use(lineage, (store) => connection.restore(params, store));
  }

  async #copyPacks(setupId: string, lineage: string, root: string): Promise<void> {
    const { stores, ids } = this.#options;
    await stores.use(setupId, (source) =>
      stores.use(lineage, async (target) => {
        await copyPacks(source, target, () => ids.next('snp'));
        parseRoot(await target.read(parseHash(root), OBJECT_KINDS.root));
      }),
    );
  }

  /** Part of the caller's transaction. */
  #insertSnapshot(
    session: SessionRow,
    { root, files, directories, bytes }: SetupTemplate['workspace'],
  ): void {
    const { snapshots, events, ids, now } = this.#options;
    const row: SnapshotRow = {
      ...{ id: ids.next('snp'), sessionId: session.id, lineage: session.lineage, createdAt: now() },
      ...{
        reason: 'after-setup',
        label: null,
        pinned: false,
        base: snapshots.newest(session.id)?.id ?? null,
      },
      ...{ root, stateRoot: null, files, directories, bytes },
      ...{ changedFiles: files, changedBytes: bytes, newBytes: 0, scanMs: 0, frozenMs: 0 },
      ...{ eventSeq: events.head(session.id).seq, duringTurn: false, missing: 0, missingPaths: [] },
    };
    snapshots.insert(row);
    const data = { snapshotId: row.id, reason: row.reason, label: null, root, files, bytes };
    events.append(session.id, [
      { type: 'snapshot.created', data: { ...data, changedFiles: files, newBytes: 0, frozenMs: 0 } },
    ]);
  }

  async #freeBytes(): Promise<number> {
    const { bavail, bsize } = await statfs(this.#options.home.store);
    return Math.max(0, bavail * bsize - MIN_FREE_MIB * MIB);
  }
}

/** All of HOME but these paths. */
function homeScope(except: readonly string[]): StateScope {
  return { paths: null, except: [...except], signIn: [...SIGN_IN_FILES] };
}

function extentOf({ root, files, directories, bytes }: ScanResult): SetupTemplate['workspace'] {
  return { root, files, directories, bytes };
}
