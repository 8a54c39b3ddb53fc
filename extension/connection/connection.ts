import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { EventEmitter, workspace } from 'vscode';
import type { Disposable, Event, LogOutputChannel, Uri } from 'vscode';
import { HostList } from '../../hosts/base/host-list.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { ClientInfo, MethodName, Params, Result } from '../../protocol/methods.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import type { CallOptions, CallResult } from '../../protocol/wire/shapes.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { HostConnection } from './host-connection.ts';
import { LOCAL } from './host-name.ts';
import { LocalSupervisor } from './local-supervisor.ts';
import { RemoteSupervisor } from './remote-supervisor.ts';
import type { AskPerson } from './remote-supervisor.ts';
import { SessionOwners } from './session-owners.ts';
import type { ConnectionState } from './state.ts';
import type { SupervisorProgram } from './supervisor-program.ts';

/** The schemes of files, whose authority ends with the id of a home. */
const FILE_SCHEMES: readonly string[] = ['holdfast', 'holdfast-snapshot', 'holdfast-artifact'];

export interface ConnectionOptions {
  readonly home: string;
  readonly client: ClientInfo;
  readonly program: () => Promise<SupervisorProgram>;
  readonly log: LogOutputChannel;
  readonly ask: AskPerson;
}

/**
 * The window's connections: to this machine, and to the hosts that it uses. A call about a session goes to the host that
 * has the session; any other goes to the window's host, which is the one of its folder, else this machine.
 */
export class Connection implements Disposable {
  readonly #options: ConnectionOptions;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<ConnectionState>());
  readonly #connected = this.#owned.add(new EventEmitter<SupervisorPeer>());
  readonly #hostsChanged = this.#owned.add(new EventEmitter<undefined>());
  readonly #hosts = new Map<string, HostConnection>();
  readonly #remote = new Map<string, RemoteSupervisor>();
  /** Those whose sessions this window still shows. Every call to them fails. */
  readonly #removed = new Map<string, HostConnection>();
  readonly #owners = new SessionOwners(LOCAL);
  /** This machine's. */
  readonly local: HostConnection;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.local = this.#add(LOCAL, new LocalSupervisor(options));
  }

  /** Fires with the state of the window's host when the state of any host has changed. */
  readonly onDidChange: Event<ConnectionState> = this.#changed.event;
  /** Fires after every connect and reconnect of any host. Subscriptions must be made again then. */
  readonly onDidConnect: Event<SupervisorPeer> = this.#connected.event;
  /** Fires when the window knows another set of hosts. */
  readonly onDidChangeHosts: Event<undefined> = this.#hostsChanged.event;

  /** This machine, then the hosts of its list, by name. */
  get hosts(): readonly HostConnection[] {
    this.#readList();
    const [local, ...others] = [...this.#hosts.values()];
    return [local ?? this.local, ...others.sort((a, b) => (a.name < b.name ? -1 : 1))];
  }

  /** Errors: `not_found`. */
  host(name: string): HostConnection {
    this.#readList();
    const found = this.#hosts.get(name);
    if (found === undefined) throw new HoldfastError('not_found', `There is no host ${JSON.stringify(name)}`);
    return found;
  }

  /** How another machine's supervisor is reached. Undefined for this machine. */
  remote(name: string): RemoteSupervisor | undefined {
    return this.#remote.get(name);
  }

  /**
   * The host that has a session, also if it was removed from the list. One that no host has reported is that of the
   * folder which names it, else this machine's, which says so if it has none: no other host is asked for what is not its
   * own.
   */
  of(session: string): HostConnection {
    const name = this.#owners.ownerOf(session) ?? this.#folderOwner(session) ?? LOCAL;
    return this.#hosts.get(name) ?? this.#removed.get(name) ?? this.local;
  }

  /** The host that has a file. Undefined where its link names a home that no host has, or not that of its session. */
  at({ scheme, authority }: Uri): HostConnection | undefined {
    if (!FILE_SCHEMES.includes(scheme)) return undefined;
    const [id = '', home] = authority.split('.', 2);
    const has = (host: HostConnection): boolean => host.homeId === home;
    // The list is on the disk: only for a home that is not known.
    const found =
      home === undefined || has(this.local) ? this.local : (this.known.find(has) ?? this.hosts.find(has));
    const isOwner = found === undefined || scheme !== 'holdfast' || this.#owners.claim(found.name, id);
    return isOwner ? found : undefined;
  }

  /** The host reported these sessions; returns those that no other host had reported before. */
  claim<S extends { readonly id: string }>(host: HostConnection, sessions: readonly S[]): readonly S[] {
    return sessions.filter(({ id }) => this.owns(host, id));
  }

  /** Whether the session is this host's. One that no host had reported is from now on. */
  owns(host: HostConnection, session: string): boolean {
    return this.#owners.claim(host.name, session);
  }

  /** Ends the connections to hosts that are no longer in the list. */
  forgetRemoved(): void {
    this.#readList();
  }

  /** The hosts as the list was last read. */
  get known(): readonly HostConnection[] {
    return [...this.#hosts.values()];
  }

  /** The connections that there are now. */
  get connected(): readonly { readonly peer: SupervisorPeer }[] {
    return this.known.flatMap(({ peer }) => (peer === undefined ? [] : [{ peer }]));
  }

  get state(): ConnectionState {
    return this.own.state;
  }

  get homeId(): string | undefined {
    return this.own.homeId;
  }

  get peer(): SupervisorPeer | undefined {
    return this.own.peer;
  }

  /** The home of this machine. */
  get home(): string {
    return this.#options.home;
  }

  /** Starts to connect to the window's host, if that has not happened yet. */
  ensureConnecting(): void {
    this.own.ensureConnecting();
  }

  /** For a person's command: tries again now, and may start a supervisor whatever failed before. */
  retry(): void {
    this.own.retry();
  }

  /** Resolves with the peer as soon as there is a connection. Errors: the reason why there is none; `timeout`. */
  ready(): Promise<SupervisorPeer> {
    return this.own.ready();
  }

  checkEngine(): Promise<void> {
    return this.own.checkEngine();
  }

  call<M extends MethodName>(method: M, params: Params<M>, options: CallOptions = {}): Promise<Result<M>> {
    return this.#route(params).call(method, params, options);
  }

  callWithBytes<M extends MethodName>(
    method: M,
    params: Params<M>,
    options: CallOptions = {},
  ): Promise<CallResult<Result<M>>> {
    return this.#route(params).callWithBytes(method, params, options);
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #route(params: object): HostConnection {
    return 'session' in params && typeof params.session === 'string' ? this.of(params.session) : this.own;
  }

  #folderOwner(session: string): string | undefined {
    const isOfSession = ({ scheme, authority }: Uri): boolean =>
      scheme === 'holdfast' && authority.split('.', 1)[0] === session;
    const folder = workspace.workspaceFolders?.find(({ uri }) => isOfSession(uri));
    return folder === undefined ? undefined : this.at(folder.uri)?.name;
  }

  /** The window's: of the first of its folders that is ours, else this machine. */
  get own(): HostConnection {
    for (const { uri } of workspace.workspaceFolders ?? []) {
      const host = this.at(uri);
      if (host !== undefined) return host;
    }
    return this.local;
  }

  /** The list is read again each time: the command line changes it as well. */
  #readList(): void {
    // First, because the reader is in the second bundle, and most machines have no list.
    if (!existsSync(join(this.#options.home, 'hosts.json')) && this.#hosts.size === 1) return;
    const listed = this.#listed();
    if (listed === undefined) return;
    const names = new Set(listed);
    let isChanged = false;
    for (const [name, host] of this.#hosts) {
      if (name === LOCAL || names.has(name)) continue;
      host.dispose();
      this.#hosts.delete(name);
      this.#remote.delete(name);
      this.#removed.set(name, host);
      isChanged = true;
    }
    for (const name of names) {
      if (this.#hosts.has(name)) continue;
      const { home, client, program, ask } = this.#options;
      const isTaken = (homeId: string): boolean =>
        [...this.#hosts.values()].some((other) => other.name !== name && other.homeId === homeId);
      const supervisor = new RemoteSupervisor({ home, host: name, client, program, ask, isTaken });
      this.#remote.set(name, supervisor);
      this.#add(name, supervisor);
      isChanged = true;
    }
    if (isChanged) queueMicrotask(() => this.#hostsChanged.fire(undefined));
  }

  /** Undefined where the list is damaged: the hosts stay those that it had. */
  #listed(): readonly string[] | undefined {
    try {
      return new HostList(this.#options.home).all().map(({ name }) => name);
    } catch (error) {
      this.#options.log.warn(HoldfastError.from(error).sentence);
      return undefined;
    }
  }

  #add(name: string, supervisor: LocalSupervisor | RemoteSupervisor): HostConnection {
    const host = this.#owned.add(new HostConnection({ name, supervisor, log: this.#options.log }));
    host.onDidChange(() => this.#changed.fire(this.state));
    host.onDidConnect((peer) => this.#connected.fire(peer));
    this.#hosts.set(name, host);
    return host;
  }
}
