import { join } from 'node:path';
import { commands, window } from 'vscode';
import { formatDestination, parseDestination } from '../../hosts/base/destination.ts';
import { HostList, suggestHostName } from '../../hosts/base/host-list.ts';
import { ensureHostImages } from '../../hosts/connector/host-images.ts';
import { isRefusedByMachine } from '../../hosts/far/survey.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { withProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { LOCAL } from '../connection/host-name.ts';
import type { SupervisorProgram } from '../connection/supervisor-program.ts';
import { pickHostToConnect, pickKnownHost } from './pick-host.ts';
import type { HostChoice } from './pick-host.ts';

export interface HostCommandsOptions {
  readonly connection: Connection;
  readonly extensionPath: string;
  readonly program: () => Promise<SupervisorProgram>;
}

const NEW_SESSION = 'New Session';

type Report = (stage: string) => void;

/** The commands on other machines. */
export class HostCommands {
  readonly #options: HostCommandsOptions;

  constructor(options: HostCommandsOptions) {
    this.#options = options;
  }

  get handlers() {
    return {
      'holdfast.connectHost': (target) => this.#connect(target),
      'holdfast.disconnectHost': (target) => this.#disconnect(target),
      'holdfast.updateHost': (target) => this.#update(target),
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  /**
   * Connects to a host, and brings Holdfast and its images there. `target`: an entry of the view, or, from a program, a
   * name of the list or a destination. Returns the name of the host; undefined where the person cancels.
   */
  async #connect(target: unknown): Promise<string | undefined> {
    const { connection } = this.#options;
    const choice = this.#given(target) ?? (await pickHostToConnect(this.#others));
    if (choice === undefined) return undefined;
    const list = new HostList(connection.home);
    const isNew = 'destination' in choice;
    const name = isNew ? this.#add(list, choice.destination.trim()) : choice.name;
    const host = connection.host(name);
    try {
      await this.#withProgress(`Connecting to ${name}`, host, async (report, signal) => {
        host.retry();
        await settled(host, report);
        await this.#bringImages(name, report, signal);
      });
    } catch (error) {
      // A host whose login failed was a typing error.
      if (isNew && host.homeId === undefined && !isRefusedByMachine(HoldfastError.from(error))) {
        list.remove(name);
        connection.forgetRemoved();
      }
      throw error;
    }
    offerNewSession(host);
    return name;
  }

  /** Ends this window's connection. What runs on the host goes on. */
  async #disconnect(target: unknown): Promise<string | undefined> {
    const host = await this.#pick(target, 'Disconnect from Host', ({ state }) => state.kind !== 'unused');
    host?.disconnect();
    return host?.name;
  }

  /** Brings this version of Holdfast and its images to a host. Turns go on meanwhile. Returns the version there. */
  async #update(target: unknown): Promise<string | undefined> {
    const host = await this.#pick(target, 'Update the Host');
    if (host === undefined) return undefined;
    const version = await this.#withProgress(`Updating ${host.name}`, host, async (report, signal) => {
      // The connector may be of an earlier build, which brings its own program.
      host.disconnect();
      await this.#options.connection.remote(host.name)?.endLogin();
      host.retry();
      await settled(host, report);
      await this.#bringImages(host.name, report, signal);
      return (await host.call('supervisor/status', {})).version;
    });
    void window.showInformationMessage(`${host.name} runs Holdfast ${sanitize(version, 40)}.`);
    return version;
  }

  get #others(): readonly HostConnection[] {
    return this.#options.connection.hosts.filter(({ name }) => name !== LOCAL);
  }

  #given(target: unknown): HostChoice | undefined {
    const name = hostOf(target);
    if (name === undefined) return undefined;
    return this.#others.some((host) => host.name === name) ? { name } : { destination: name };
  }

  async #pick(
    target: unknown,
    title: string,
    fits: (host: HostConnection) => boolean = () => true,
  ): Promise<HostConnection | undefined> {
    const name = hostOf(target);
    if (name !== undefined) return this.#options.connection.host(name);
    const hosts = this.#others.filter(fits);
    if (hosts.length === 0) void window.showInformationMessage(`${title}: there is no such host.`);
    return pickKnownHost(title, hosts);
  }

  /** The name of a host with this destination, which is added to the list if need be. */
  #add(list: HostList, destination: string): string {
    const hosts = list.all();
    const canonical = formatDestination(parseDestination(destination));
    const known = hosts.find((host) => host.destination === canonical);
    if (known !== undefined) return known.name;
    const name = suggestHostName(destination, [LOCAL, ...hosts.map((host) => host.name)]);
    return list.add(name, destination, new Date()).name;
  }

  async #bringImages(name: string, report: Report, signal: AbortSignal): Promise<void> {
    const { connection, extensionPath, program } = this.#options;
    const { connector, environment } = await program();
    const [node = 'node'] = connector;
    const options = await connection.remote(name)?.connectOptions({ onStage: report, ask: undefined });
    if (options === undefined) return;
    const imageTool = [node, join(extensionPath, 'dist', 'setup', 'images.cjs')];
    const here = { ...environment, HOLDFAST_HOME: connection.home };
    await ensureHostImages({ ...options, environment: here, imageTool }, signal);
  }

  /** A person who cancels ends the connection, and what `run` does over it. */
  async #withProgress<T>(
    title: string,
    host: HostConnection,
    run: (report: Report, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    return withProgress(
      title,
      (report, signal) => {
        const work = run((stage) => report(sanitize(stage)), signal);
        // It ends later than the progress that nobody watches any more.
        work.catch(() => undefined);
        return Promise.race([work, cancelled(signal, host)]);
      },
      'Connecting was cancelled',
    );
  }
}

/** Most people connect to a host to begin something there. */
function offerNewSession({ name }: HostConnection): void {
  void window.showInformationMessage(`Connected to ${name}.`, NEW_SESSION).then((choice) => {
    if (choice === NEW_SESSION) void commands.executeCommand('holdfast.newSession', { host: name });
  });
}

/** The host in the argument of a command: an entry of the view, or a name that a program gives. */
function hostOf(target: unknown): string | undefined {
  if (typeof target === 'string') return target;
  if (typeof target !== 'object' || target === null || !('host' in target)) return undefined;
  return typeof target.host === 'string' ? target.host : undefined;
}

/** Resolves when the host is connected. A person may have to answer first, so there is no limit. Errors: why it is not. */
function settled(host: HostConnection, report: Report): Promise<void> {
  return new Promise((resolve, reject) => {
    const look = (): void => {
      const { state } = host;
      if (state.kind === 'connecting') {
        if (state.stage !== undefined) report(state.stage);
        return;
      }
      listener.dispose();
      if (state.kind === 'noSupervisor') reject(state.error);
      else if (state.kind === 'unused') reject(new HoldfastError('cancelled', 'Connecting was cancelled'));
      else resolve();
    };
    const listener = host.onDidChange(look);
    look();
  });
}

function cancelled(signal: AbortSignal, host: HostConnection): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => {
      host.disconnect();
      reject(HoldfastError.from(signal.reason));
    });
  });
}
