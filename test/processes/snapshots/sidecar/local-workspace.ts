import { execFileSync } from 'node:child_process';
import { constants, mkdirSync, openSync } from 'node:fs';
import { join } from 'node:path';
import type { RestoreResult, ScanResult } from '../../../../snapshot-format/sidecar-calls.ts';
import { Directory } from '../../../../sidecar/files/directory.ts';
import { O_PATH } from '../../../../sidecar/files/resolver.ts';
import type { TaskRuntime } from '../../../../sidecar/snapshots/store.ts';
import { loadSystemCalls, type SystemCalls } from '../../../../sidecar/snapshots/system-calls.ts';
import { WorkspaceSnapshots } from '../../../../sidecar/snapshots/workspace-snapshots.ts';
import type { MemoryStore } from '../../../fixtures/snapshots/memory-store.ts';

/** What the sidecar's thread does, on a folder of this machine and without the thread. */
export class LocalWorkspace implements Disposable {
  readonly path: string;
  readonly #snapshots: WorkspaceSnapshots;
  readonly #work: TaskRuntime;

  private constructor(path: string, snapshots: WorkspaceSnapshots, work: TaskRuntime) {
    this.path = path;
    this.#snapshots = snapshots;
    this.#work = work;
  }

  /** `below` gets a workspace and a folder for notes, if it has none. `around`: the system as the test wants it. */
  static async open(
    below: string,
    store: MemoryStore,
    around: (system: SystemCalls) => SystemCalls = (system) => system,
    check: () => void = () => undefined,
  ): Promise<LocalWorkspace> {
    const path = join(below, 'workspace');
    mkdirSync(path, { recursive: true });
    mkdirSync(join(below, 'control'), { recursive: true });
    const system = await loadSystemCalls();
    if (system === null) throw new Error('this machine has no native calls');
    const root = Directory.fromFd(openSync(path, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW));
    const snapshots = await WorkspaceSnapshots.open({
      system: around(system),
      root,
      control: join(below, 'control'),
    });
    return new LocalWorkspace(path, snapshots, { store: store.store(), check, progress: () => undefined });
  }

  scan(
    base: string | null = null,
    more: { budgetBytes?: number; frozen?: boolean; isBaseSuspect?: boolean; awaitsLeases?: boolean } = {},
  ): Promise<ScanResult> {
    return this.#snapshots.scan(
      { base, budgetBytes: null, frozen: false, isBaseSuspect: false, awaitsLeases: false, ...more },
      this.#work,
    );
  }

  restore(
    root: string,
    more: { path?: string; dryRun?: boolean; scannedRoot?: string } = {},
  ): Promise<RestoreResult> {
    return this.#snapshots.restore(
      { root, path: null, dryRun: false, scannedRoot: null, ...more },
      this.#work,
    );
  }

  saveScanCache(): Promise<boolean> {
    return this.#snapshots.saveCache(this.#work);
  }

  /** Runs a shell script in it. */
  runScript(script: string): string {
    return execFileSync('bash', ['-euc', script], { cwd: this.path, encoding: 'utf8' });
  }

  [Symbol.dispose](): void {
    this.#snapshots[Symbol.dispose]();
  }
}
