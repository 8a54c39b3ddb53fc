import { commands, window } from 'vscode';
import type { PermissionOption } from '../../protocol/agent-events.ts';
import type { Permission } from '../../protocol/permissions.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import type { Host } from '../connection/host.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { sessionIdOf } from '../sessions/pick-session.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { nextWaiting } from '../sessions/waiting.ts';
import { answer, askAndAnswer, pickPermission } from './answer-permission.ts';

const PERMISSION_ID = /^perm-[a-z2-7]{16}$/;
/** The most that a person chooses from, the oldest first. */
const MAX_LISTED = 200;
/** How long a host may take to say what waits. */
const LIST_MS = 10_000;

/** The commands about what waits for a person. */
export class InboxCommands {
  readonly #connection: Connection;
  readonly #host: Host;
  readonly #sessions: SessionList;
  /** The session that was gone to last. */
  #last: string | undefined;

  constructor(connection: Connection, host: Host, sessions: SessionList) {
    this.#connection = connection;
    this.#host = host;
    this.#sessions = sessions;
  }

  get handlers() {
    return {
      'holdfast.answerPermission': (target, given) => this.#answer(target, given),
      'holdfast.nextWaiting': () => this.#goToNext(),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  /**
   * `target`: a session, to answer what it asks, or the id of a permission; without one a person picks among all.
   * `given`: the answer, from a program that names a permission. Returns the kind of the answer that was given.
   */
  async #answer(target: unknown, given: unknown): Promise<PermissionOption['kind'] | undefined> {
    const id = typeof target === 'string' && PERMISSION_ID.test(target) ? target : undefined;
    const { local, known } = this.#connection;
    if (id !== undefined && typeof given === 'string' && known.length === 1)
      return answer(local, { id }, given);
    const session = id === undefined ? sessionIdOf(target) : undefined;
    const waiting = await this.#waiting(session);
    const permissions = id === undefined ? waiting : waiting.filter((one) => one.id === id);
    if (permissions.length === 0) {
      void window.showInformationMessage(
        id === undefined && session === undefined
          ? 'No agent waits for an answer.'
          : 'No answer is needed any more: it was given elsewhere, or the turn has ended.',
      );
      return undefined;
    }
    const permission = await pickPermission(permissions);
    if (permission === undefined) return undefined;
    const asking = this.#connection.of(permission.sessionId);
    return id !== undefined && typeof given === 'string'
      ? answer(asking, permission, given)
      : askAndAnswer(asking, this.#host, permission);
  }

  /** What waits in the session, else on all hosts that are connected, the oldest first. */
  async #waiting(session: string | undefined): Promise<readonly Permission[]> {
    if (session !== undefined) return this.#listed(this.#connection.of(session), session);
    await this.#connection.ready();
    const hosts = this.#connection.known.filter(({ peer }) => peer !== undefined);
    const [first, ...others] = hosts;
    const listed = await Promise.all([
      ...(first === undefined ? [] : [this.#listed(first)]),
      ...others.map((host) => this.#listed(host).catch(() => [])),
    ]);
    return listed
      .flat()
      .sort((a, b) => a.askedAt - b.askedAt)
      .slice(0, MAX_LISTED);
  }

  /** A host names sessions as it likes: only what its own ask is answered there. */
  async #listed(host: HostConnection, session?: string): Promise<readonly Permission[]> {
    const { permissions } = await host.call(
      'permission/list',
      { ...(session === undefined ? {} : { session }), limit: MAX_LISTED },
      { timeoutMs: LIST_MS },
    );
    return permissions.filter(({ sessionId }) =>
      session === undefined ? this.#connection.owns(host, sessionId) : sessionId === session,
    );
  }

  /** Opens the page of the next session that waits, and returns its id. */
  async #goToNext(): Promise<string | undefined> {
    const session = nextWaiting(await this.#sessions.list(), this.#last);
    if (session === undefined) {
      void window.showInformationMessage('No session waits for you.');
      return undefined;
    }
    this.#last = session.id;
    await commands.executeCommand('holdfast.openSessionPage', session.id);
    return session.id;
  }
}
