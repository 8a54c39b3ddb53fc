import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import { hostOfTarget } from '../connection/target-host.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { pickSession } from '../sessions/pick-session.ts';
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
      'holdfast.setSecret': (target) => this.#setSecret(target),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  async #allowHost(target: unknown, host: unknown, scope: unknown): Promise<string | undefined> {
    const session = await pickSession(this.#sessions, target, { title: 'Allow Host', here: true });
    return session === undefined ? undefined : allowHost(this.#connection, session, { host, scope });
  }

  /** `target`: names a host, and a secret where that is known already. */
  #setSecret(target: unknown): Promise<string | undefined> {
    // Kept: the window's folders may be others when the value is typed.
    const host = hostOfTarget(this.#connection, target) ?? this.#connection.own;
    const isNamed = typeof target === 'object' && target !== null && 'secret' in target;
    const name = isNamed && typeof target.secret === 'string' ? target.secret : undefined;
    return setSecret(host, this.#connection.known.length, name);
  }
}
