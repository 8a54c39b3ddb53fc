import { HoldfastError } from '../../protocol/errors.ts';
import type { ClientInfo } from '../../protocol/methods.ts';
import { connectSupervisor } from '../../protocol/client/connect.ts';
import type { SupervisorConnection } from '../../protocol/client/connect.ts';
import type { StartMode } from '../../protocol/client/reconnecting-client.ts';
import { HostList } from '../../hosts/base/host-list.ts';
import { HostReach, disconnectHost } from '../../hosts/connector/connect-host.ts';
import type { ConnectHostOptions, ConnectionUi } from '../../hosts/connector/connect-host.ts';
import type { HostSupervisor } from './host-connection.ts';
import type { SupervisorProgram } from './supervisor-program.ts';

/** What trying again does not change: a person has to do something first. */
const FINAL: readonly string[] = ['permission_denied', 'cancelled', 'not_supported', 'invalid_params'];

/** Asks a person what ssh asks, until the attempt is over. Null: no answer. */
export type AskPerson = (
  host: string,
  question: { readonly text: string; readonly isSecret: boolean },
  signal: AbortSignal,
) => Promise<string | null>;

export interface RemoteSupervisorOptions {
  /** The home of this machine, and the name of the host in its list. */
  readonly home: string;
  readonly host: string;
  readonly client: ClientInfo;
  readonly program: () => Promise<SupervisorProgram>;
  readonly ask: AskPerson;
  /** Whether another host of this window has the home. */
  readonly isTaken: (homeId: string) => boolean;
}

/** The supervisor of another machine, through the connector that all programs of this machine share. */
export class RemoteSupervisor implements HostSupervisor {
  readonly #options: RemoteSupervisorOptions;
  /** Only an attempt that a person waits for asks: nobody is interrupted because a train entered a tunnel. */
  #isExpected = false;
  #failure: HoldfastError | undefined;

  constructor(options: RemoteSupervisorOptions) {
    this.#options = options;
  }

  /** As it was at the last connection. */
  get homeId(): string | undefined {
    const { home, host } = this.#options;
    return new HostList(home).all().find(({ name }) => name === host)?.homeId;
  }

  expectPerson(): void {
    this.#isExpected = true;
    this.#failure = undefined;
  }

  async connect(
    start: StartMode,
    { signal, onStage }: { readonly signal: AbortSignal; readonly onStage: (stage: string) => void },
  ): Promise<SupervisorConnection> {
    if (this.#failure !== undefined) throw this.#failure;
    const { client, host, home, ask, isTaken } = this.#options;
    const isExpected = this.#isExpected;
    this.#isExpected = false;
    const over = new AbortController();
    const isOver = AbortSignal.any([signal, over.signal]);
    try {
      const options = await this.connectOptions({
        onStage,
        ask: isExpected ? (question) => ask(host, question, isOver) : undefined,
      });
      const reach = new HostReach(options, start);
      const found = await connectSupervisor({ home: undefined, reach, program: client, start, signal });
      const { homeId } = found.hello;
      if (isTaken(homeId) || !new HostList(home).setHomeId(host, homeId)) {
        found.close();
        throw new HoldfastError('permission_denied', `${host} cannot be used beside another host of yours`, {
          why: 'it says that it has the home of that one: both names lead to one machine, or it is lying',
          next: 'remove one of the names with `holdfast host rm`',
        });
      }
      return found;
    } catch (error) {
      const failure = HoldfastError.from(error);
      if (!signal.aborted && FINAL.includes(failure.code)) this.#failure = failure;
      throw failure;
    } finally {
      over.abort();
    }
  }

  /** How this window opens streams of the connector. */
  async connectOptions(ui: ConnectionUi): Promise<ConnectHostOptions> {
    const { home, host, client } = this.#options;
    const { connector, environment } = await this.#options.program();
    return { home, host, build: client.build, command: connector, environment, ui };
  }

  /** Ends the login that all programs of this machine share. */
  async endLogin(): Promise<void> {
    await disconnectHost(this.#options.home, this.#options.host);
  }
}
