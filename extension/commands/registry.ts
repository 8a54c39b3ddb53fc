import { ProgressLocation, commands, window } from 'vscode';
import type { Disposable } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { hostForNew, hostOfTarget } from '../connection/target-host.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { Notifications } from './notifications.ts';
import { completeWalkthroughStep } from './walkthrough.ts';
import { COMMANDS, availabilityIn } from './table.ts';
import type { CommandId } from './table.ts';

export type CommandHandler = (...args: readonly unknown[]) => unknown;
/** Every command of the table has a handler: a missing one does not compile. */
export type CommandHandlers = Readonly<Record<CommandId, CommandHandler>>;

/** Registers the commands, and runs each as the table says for the current state of the connection. */
export class CommandRegistry implements Disposable {
  readonly #connection: Connection;
  readonly #notices: Notifications;
  readonly #owned = new DisposableStore();

  constructor(connection: Connection, notices: Notifications, handlers: CommandHandlers) {
    this.#connection = connection;
    this.#notices = notices;
    for (const [id, handler] of Object.entries(handlers) as [CommandId, CommandHandler][]) {
      this.#owned.add(
        commands.registerCommand(id, (...args: readonly unknown[]) => this.#run(id, handler, args)),
      );
    }
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /**
   * Resolves with the result of the handler; undefined where it did not run or failed, which the person has been told.
   */
  async #run(id: CommandId, handler: CommandHandler, args: readonly unknown[]): Promise<unknown> {
    try {
      if (!(await this.#isPossible(id, args[0]))) return undefined;
      const outcome = await handler(...args);
      completeWalkthroughStep(id, outcome);
      return outcome;
    } catch (error) {
      const failure = HoldfastError.from(error, 'The command failed');
      // The person who cancelled needs no message.
      if (failure.code !== 'cancelled') this.#notices.showError(failure);
      return undefined;
    }
  }

  /** The host whose state decides. A person whose own machine has no engine works on other hosts. */
  #hostFor(target: unknown): HostConnection {
    return hostOfTarget(this.#connection, target) ?? hostForNew(this.#connection);
  }

  async #isPossible(id: CommandId, target: unknown): Promise<boolean> {
    const host = this.#hostFor(target);
    const { state } = host;
    switch (availabilityIn(COMMANDS[id], state.kind)) {
      case 'run':
        return true;
      case 'wait':
        await this.#connected('Waiting for the supervisor', host);
        return this.#isPossibleNow(id, target);
      case 'start':
        host.retry();
        await this.#connected('Starting the supervisor', host);
        return this.#isPossibleNow(id, target);
      case 'explain':
        this.#notices.showUnavailable(state);
        return false;
    }
  }

  #isPossibleNow(id: CommandId, target: unknown): boolean {
    const { state } = this.#hostFor(target);
    if (availabilityIn(COMMANDS[id], state.kind) === 'run') return true;
    this.#notices.showUnavailable(state);
    return false;
  }

  async #connected(title: string, host: HostConnection): Promise<void> {
    await window.withProgress({ location: ProgressLocation.Window, title: `Holdfast: ${title}` }, () =>
      host.ready(),
    );
  }
}
