import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { pickSession } from '../sessions/pick-session.ts';
import { onlySessionInWindow } from '../sessions/session-window.ts';
import { allowHost } from './allow-host.ts';
import { setSecret } from './set-secret.ts';

/** The commands about what sessions may reach, and with which secrets. */
export class PolicyCommands {
  readonly #connection: Connection;
  readonly #sessions: SessionList;

  constructor(connection: Connection, sessions: SessionList) {
    this.#connection = connection;
    this.#sessions = sessions;
  }

  get handlers() {
    return {
      'holdfast.allowHost': (target, host, scope) => this.#allowHost(target, host, scope),
      'holdfast.setSecret': (name) =>
        setSecret(this.#connection, typeof name === 'string' ? name : undefined),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  async #allowHost(target: unknown, host: unknown, scope: unknown): Promise<string | undefined> {
    const session = await pickSession(this.#sessions, target ?? onlySessionInWindow(), {
      title: 'Allow Host',
    });
    return session === undefined ? undefined : allowHost(this.#connection, session, { host, scope });
  }
}
