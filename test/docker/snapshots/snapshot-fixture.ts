import { join } from 'node:path';
import type { HoldfastError } from '../../../protocol/errors.ts';
import type { FaultHome } from '../../faults/harness/fault-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import type { SupervisorProcess } from '../../faults/harness/supervisor-process.ts';
import { deploy } from '../../setup/deploy.ts';

/** A supervisor with a profile whose sessions get snapshots. */
export class SnapshotFixture {
  readonly #home: FaultHome;
  #supervisor: SupervisorProcess;

  private constructor(home: FaultHome, supervisor: SupervisorProcess) {
    this.#home = home;
    this.#supervisor = supervisor;
  }

  /** Starts a supervisor in a new home; the caller disposes of the home. */
  static async create(home: FaultHome): Promise<SnapshotFixture> {
    const supervisor = await home.start();
    const directory = await writeProject(join(home.path, '..'), shellProject('looks'));
    await deploy(home, directory);
    return new SnapshotFixture(home, supervisor);
  }

  /** Kills the supervisor with SIGKILL and starts the next one. */
  async restartSupervisor(): Promise<void> {
    await this.#supervisor.kill();
    this.#supervisor = await this.#home.start();
  }

  async createSession(): Promise<{ id: string; folder: string }> {
    const made = await this.#home.call('session/create', { profile: 'looks' });
    return { id: made.session.id, folder: join(this.#home.path, 'workspaces', made.session.id) };
  }

  async createSnapshot(of: string): Promise<string> {
    return (await this.#home.call('snapshot/create', { session: of })).id;
  }
}

export async function errorCode(promise: Promise<unknown>): Promise<string> {
  const error: unknown = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  return (error as HoldfastError | null)?.code ?? 'it did not fail';
}
