import { join } from 'node:path';
import type { HoldfastError } from '../../../protocol/errors.ts';
import type { FaultHome } from '../../faults/harness/fault-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import type { SupervisorProcess } from '../../faults/harness/supervisor-process.ts';

/** Sessions to look at the snapshots of, of a profile `looks`. */
export class LooksScene {
  readonly #home: FaultHome;
  #supervisor: SupervisorProcess;

  private constructor(home: FaultHome, supervisor: SupervisorProcess) {
    this.#home = home;
    this.#supervisor = supervisor;
  }

  /** Starts a supervisor in a new home, which stays the caller's to end. */
  static async begin(home: FaultHome): Promise<LooksScene> {
    const supervisor = await home.start();
    const directory = await writeProject(join(home.path, '..'), shellProject('looks'));
    await home.call('profile/deploy', { directory });
    return new LooksScene(home, supervisor);
  }

  /** Kills the supervisor and starts the next one. */
  async killAndStart(): Promise<void> {
    await this.#supervisor.kill();
    this.#supervisor = await this.#home.start();
  }

  async session(): Promise<{ id: string; folder: string }> {
    const made = await this.#home.call('session/create', { profile: 'looks' });
    return { id: made.session.id, folder: join(this.#home.path, 'workspaces', made.session.id) };
  }

  async snapshot(of: string): Promise<string> {
    return (await this.#home.call('snapshot/create', { session: of })).id;
  }
}

export async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error: unknown = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  return (error as HoldfastError | null)?.code ?? 'it did not fail';
}
