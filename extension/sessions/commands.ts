import { randomUUID } from 'node:crypto';
import { window } from 'vscode';
import type { Connection } from '../connection/connection.ts';
import { inert } from '../inert.ts';

/** What commands do with sessions. Each gives what programs may want to know of its outcome. */
export class SessionCommands {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** A new session of a profile (asked for where it is not named); gives its id. */
  async create(profile: unknown): Promise<string | undefined> {
    const name = typeof profile === 'string' ? profile : await this.#pickProfile();
    if (name === undefined) return undefined;
    const { session } = await this.#connection.call('session/create', { profile: name, opId: randomUUID() });
    void window.showInformationMessage(`New session ${inert(session.profile)}/${inert(session.name)}.`);
    return session.id;
  }

  async #pickProfile(): Promise<string | undefined> {
    const { profiles } = await this.#connection.call('profile/list', {}, { repeatable: true });
    const items = profiles.map(({ name, agent, persistent }) => ({
      label: name,
      description: `${agent.protocol}${persistent ? '' : ' · ephemeral'}`,
    }));
    const picked = await window.showQuickPick(items, {
      title: 'New Session',
      placeHolder: 'Profile of the new session',
    });
    return picked?.label;
  }
}
