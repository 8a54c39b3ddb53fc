import type { CommandWork } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import type { KnownSessions } from '../sessions/known-sessions.ts';
import { onlySessionHere, pickSession } from '../sessions/pick.ts';
import { allowHost } from './allow-host.ts';

/** What a session may reach. */
export class PolicyCommands {
  readonly #connection: Connection;
  readonly #sessions: KnownSessions;

  constructor(connection: Connection, sessions: KnownSessions) {
    this.#connection = connection;
    this.#sessions = sessions;
  }

  get works() {
    return {
      'holdfast.allowHost': (target, host, scope) => this.#allowHost(target, host, scope),
    } as const satisfies Partial<Record<CommandId, CommandWork>>;
  }

  async #allowHost(target: unknown, host: unknown, scope: unknown): Promise<string | undefined> {
    const session = await pickSession(this.#sessions, target ?? onlySessionHere(), { title: 'Allow Host' });
    return session === undefined ? undefined : allowHost(this.#connection, session, { host, scope });
  }
}
