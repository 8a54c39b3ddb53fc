import { readFileSync } from 'node:fs';
import type { LogOutputChannel } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import { homePaths } from '../../protocol/home.ts';
import type { ClientInfo } from '../../protocol/methods.ts';
import { compareBuilds } from '../../protocol/client/builds.ts';
import { connectSupervisor } from '../../protocol/client/connect.ts';
import type { SupervisorConnection } from '../../protocol/client/connect.ts';
import type { StartMode } from '../../protocol/client/reconnecting-client.ts';
import type { HostSupervisor } from './host-connection.ts';
import type { SupervisorProgram } from './supervisor-program.ts';

/** As `HomeIdSchema`, which is in the second bundle. */
const HOME_ID = /^[a-z2-7]{26}$/;

export interface LocalSupervisorOptions {
  readonly home: string;
  readonly client: ClientInfo;
  readonly program: () => Promise<SupervisorProgram>;
  readonly log: LogOutputChannel;
}

/** The supervisor of this machine, which the extension starts with the program that it ships. */
export class LocalSupervisor implements HostSupervisor {
  readonly #options: LocalSupervisorOptions;

  constructor(options: LocalSupervisorOptions) {
    this.#options = options;
  }

  /** Known before there is a connection, because the home is on this machine. Undefined: nothing has created it yet. */
  get homeId(): string | undefined {
    return readHomeId(this.#options.home);
  }

  expectPerson(): void {
    // There is nothing to ask.
  }

  async connect(
    start: StartMode,
    { signal }: { readonly signal: AbortSignal },
  ): Promise<SupervisorConnection> {
    const { home, client } = this.#options;
    // Tries to connect first, because finding a Node that could start a supervisor takes longer.
    const found = await connectSupervisor({ home, program: client, start: 'never', signal }).catch(
      (error: unknown) => {
        if (start === 'auto' && needsStart(error)) return undefined;
        throw error;
      },
    );
    const tooOld =
      found !== undefined && start === 'auto' && compareBuilds(found.hello.supervisor, client) < 0;
    if (tooOld) found.close();
    return found === undefined || tooOld ? this.#start(signal) : found;
  }

  async #start(signal: AbortSignal): Promise<SupervisorConnection> {
    const { home, client, log } = this.#options;
    const { command, environment, node } = await this.#options.program();
    log.info(`Starting a supervisor with ${node}: ${command.join(' ')}`);
    return connectSupervisor({ home, program: client, start: 'auto', command, environment, signal });
  }
}

/** Undefined where the home or its id cannot be read: the supervisor then says why, or creates it. */
function readHomeId(home: string): string | undefined {
  try {
    return HOME_ID.exec(readFileSync(homePaths(home).id, 'utf8').trim())?.[0];
  } catch {
    return undefined;
  }
}

/** Whether starting a supervisor would help: none runs, or the running one is older than this client. */
function needsStart(error: unknown): boolean {
  return error instanceof HoldfastError && ['not_found', 'version_mismatch'].includes(error.code);
}
