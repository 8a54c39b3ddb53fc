import { execFileSync } from 'node:child_process';
import { constants, mkdirSync, openSync } from 'node:fs';
import { join } from 'node:path';
import type { RestoreResult, ScanResult } from '../../../../snapshot-format/wire.ts';
import { Directory } from '../../../../sidecar/files/directory.ts';
import { O_PATH } from '../../../../sidecar/files/resolver.ts';
import type { Work } from '../../../../sidecar/snapshots/store.ts';
import { loadSystem, type System } from '../../../../sidecar/snapshots/system.ts';
import { WorkspaceSnapshots } from '../../../../sidecar/snapshots/workspace-snapshots.ts';
import type { KeptStore } from '../kept-store.ts';

/** What the sidecar's thread does, on a folder of this machine and without the thread. */
export class LocalWorkspace implements Disposable {
  readonly path: string;
  readonly #snapshots: WorkspaceSnapshots;
  readonly #work: Work;

  private constructor(path: string, snapshots: WorkspaceSnapshots, work: Work) {
    this.path = path;
    this.#snapshots = snapshots;
    this.#work = work;
  }

  /** `below` gets a workspace and a folder for notes, if it has none. `around`: the system as the test wants it. */
  static async open(
    below: string,
    store: KeptStore,
    around: (system: System) => System = (system) => system,
    check: () => void = () => undefined,
  ): Promise<LocalWorkspace> {
    const path = join(below, 'workspace');
    mkdirSync(path, { recursive: true });
    mkdirSync(join(below, 'control'), { recursive: true });
    const system = await loadSystem();
    if (system === null) throw new Error('this machine has no native calls');
    const root = Directory.over(openSync(path, O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW));
    const snapshots = await WorkspaceSnapshots.open({
      system: around(system),
      root,
      control: join(below, 'control'),
    });
    return new LocalWorkspace(path, snapshots, { store: store.store(), check, progress: () => undefined });
  }

  scan(
    base: string | null = null,
    more: { budgetBytes?: number; frozen?: boolean; doubts?: boolean; awaitsLeases?: boolean } = {},
  ): Promise<ScanResult> {
    return this.#snapshots.scan(
      { base, budgetBytes: null, frozen: false, doubts: false, awaitsLeases: false, ...more },
      this.#work,
    );
  }

  restore(
    root: string,
    more: { path?: string; dryRun?: boolean; seen?: string } = {},
  ): Promise<RestoreResult> {
    return this.#snapshots.restore({ root, path: null, dryRun: false, seen: null, ...more }, this.#work);
  }

  keep(): Promise<boolean> {
    return this.#snapshots.keep(this.#work);
  }

  /** Runs a shell script in it. */
  run(script: string): string {
    return execFileSync('bash', ['-euc', script], { cwd: this.path, encoding: 'utf8' });
  }

  [Symbol.dispose](): void {
    this.#snapshots[Symbol.dispose]();
  }
}
