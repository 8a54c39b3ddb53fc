import type { Disposable } from 'vscode';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { readSetupLog, runSetupAgain } from './setup-runs.ts';
import { SetupLogs } from './setup-logs.ts';

/** The commands about the setups of profiles. */
export class SetupCommands implements Disposable {
  readonly #connection: Connection;
  readonly #logs = new SetupLogs();

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  dispose(): void {
    this.#logs.dispose();
  }

  get handlers() {
    return {
      'holdfast.showSetupLog': (profile) => readSetupLog(this.#connection, this.#logs, profile),
      'holdfast.runSetup': (profile) => runSetupAgain(this.#connection, this.#logs, profile),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }
}
