import type { Disposable } from 'vscode';
import type { CheckSubject } from '../../protocol/checks.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import type { Host } from '../connection/host.ts';
import { pickSession } from '../sessions/pick-session.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { CheckRuns } from './check-runs.ts';
import type { CheckResult } from './check-runs.ts';
import { CheckTests } from './check-tests.ts';

/** What runs the checks of a profile, on the workspace as it is or on what a review accepted: commands, and the Testing view. */
export class CheckCommands implements Disposable {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  #runs: CheckRuns | undefined;
  /** Waits for the first session, and is the Testing view's part from then on. */
  #tests: Pick<Disposable, 'dispose'>;

  constructor(connection: Connection, sessions: SessionList, host: Host) {
    this.#connection = connection;
    this.#sessions = sessions;
    this.#tests = sessions.onDidChange(({ length }) => {
      if (length === 0) return;
      this.#tests.dispose();
      this.#tests = new CheckTests({ connection, host, sessions, runs: () => this.#open() });
    });
  }

  get handlers() {
    return {
      'holdfast.runChecks': (target, name, again) => this.#run(target, 'workspace', name, again),
      'holdfast.runChecksOnAccepted': (target, name, again) => this.#run(target, 'accepted', name, again),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  dispose(): void {
    this.#tests.dispose();
    this.#runs?.dispose();
  }

  #open(): CheckRuns {
    return (this.#runs ??= new CheckRuns(this.#connection));
  }

  /** Runs all checks, or the one with this name; `again`: also those that passed on the same tree. Returns the results. */
  async #run(
    target: unknown,
    of: CheckSubject,
    name: unknown,
    again: unknown,
  ): Promise<CheckResult[] | undefined> {
    const title = of === 'accepted' ? 'Run Checks on What You Accepted' : 'Run Checks';
    const session = await pickSession(this.#sessions, target, { title, here: true });
    if (session === undefined) return undefined;
    const named = typeof name === 'string' ? name : undefined;
    return await this.#open().run(session, of, named, again === true);
  }
}
