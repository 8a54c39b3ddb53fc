import type { Egress } from '../egress/egress.ts';
import type { Policies } from '../egress/policies.ts';
import type { Engine } from '../engine/port.ts';
import type { SetupSidecar } from './setup-commands.ts';
import { type SetupSandbox, sandboxOf, workspaceOf } from './setup-sandbox.ts';

export interface SetupContainersOptions {
  readonly engine: Engine;
  readonly policies: Pick<Policies, 'withdraw'>;
  readonly egress: Pick<Egress, 'setLive'>;
  /** Connects to the sidecar of this sandbox. */
  readonly connect: (sandboxId: string) => Promise<SetupSidecar>;
}

/** The containers of setups and builds, and the files that commands wrote in them: how they go. */
export class SetupContainers {
  readonly #options: SetupContainersOptions;
  readonly #removing = new Set<string>();

  constructor(options: SetupContainersOptions) {
    this.#options = options;
  }

  /** A sidecar removes the files of this setup. */
  isRemoving(id: string): boolean {
    return this.#removing.has(id);
  }

  /** Also what an earlier supervisor left of a setup. */
  async remove(row: SetupSandbox): Promise<void> {
    const { engine, policies, egress } = this.#options;
    egress.setLive(row.id, false);
    policies.withdraw(row.id);
    this.#removing.add(row.id);
    try {
      await engine.stopAgent(row.id, 0);
      await this.#clearFiles(row);
      await engine.removeSandbox(row.id, 0);
      await engine.deleteWorkspace(workspaceOf(row));
    } finally {
      this.#removing.delete(row.id);
    }
  }

  /** Only a sidecar opens what commands wrote. */
  async #clearFiles(row: SetupSandbox): Promise<void> {
    const { engine, connect } = this.#options;
    if (!row.hasCommands) return;
    await engine.createWorkspace(workspaceOf(row));
    await engine.startSidecar(sandboxOf(row, { name: row.profile, runtime: 'default' }));
    const sidecar = await connect(row.id);
    try {
      await sidecar.clearWorkspace();
      await sidecar.clearHome();
    } finally {
      sidecar.close();
    }
  }
}
