import { randomUUID } from 'node:crypto';
import { commands, workspace } from 'vscode';
import type { Disposable, WebviewPanel } from 'vscode';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { inputOfKind } from '../../protocol/turn-kinds.ts';
import { HOME_REQUESTS, MAX_STARTS } from '../../webview/home-messages.ts';
import type {
  HomeFile,
  HomeHandlers,
  HomeHost,
  HomeRequests,
  HomeState,
  LastMessage,
  Start,
  ToHome,
} from '../../webview/home-messages.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { LOCAL } from '../connection/host-name.ts';
import { hostTitle } from '../connection/host-status.ts';
import type { Host } from '../connection/host.ts';
import { hostState } from '../page/host-state.ts';
import { WebviewLink } from '../page/webview-link.ts';
import { createSessionOf, profileOf } from '../sessions/create-session.ts';
import type { SessionSource } from '../sessions/create-session.ts';
import type { SessionList } from '../sessions/session-list.ts';
import type { UnreadTurns } from '../sessions/unread-turns.ts';
import { answer } from '../inbox/answer-permission.ts';
import { FirstFiles } from './first-files.ts';
import { homeSessions } from './home-sessions.ts';
import { lastMessage } from './last-message.ts';
import { questionsOf } from './questions.ts';

/** Changes that come together are sent together. */
const GATHER_MS = 50;
/** Items at the end of a conversation that are read for the last words. */
const LAST_ITEMS = 20;
const MAX_WHY = 1000;
const IMAGE_CHECKS: ReadonlySet<string> = new Set(['sidecar image', 'agent image']);

export interface HomePageOptions {
  readonly connection: Connection;
  readonly host: Host;
  readonly sessions: SessionList;
  readonly unread: UnreadTurns;
  readonly panel: WebviewPanel;
  /** The folder of the agent that *Try the Example* deploys. */
  readonly example: string;
}

interface Profile {
  readonly name: string;
  readonly input: 'prompt' | 'json';
}

/** What was asked for, and is not confirmed: the same request again is the same session and the same turn. */
interface Unconfirmed {
  readonly request: string;
  readonly session: string;
  readonly turn: string;
}

/** The open home page: sends what the feeds of the hosts say, and does what a person asks for on it. */
export class HomePage implements Disposable {
  readonly #options: HomePageOptions;
  readonly #owned = new DisposableStore();
  readonly #link: WebviewLink<HomeRequests, ToHome>;
  readonly #files = new FirstFiles();
  readonly #profiles = new Map<HostConnection, readonly Profile[]>();
  #images: HomeState['images'] = null;
  #secrets: number | null = null;
  /** The connection that was asked for the images: each is asked once, also where that fails. */
  #askedFor: SupervisorPeer | undefined;
  #unconfirmed: Unconfirmed | undefined;
  /** A page that nobody sees has no document, and says `ready` when it is shown again. */
  #isReady = false;
  #timer: NodeJS.Timeout | undefined;
  #sentState = '';
  /** Session id → what the page has of it, as JSON; undefined before the first list. */
  #sentSessions: Map<string, string> | undefined;

  constructor(options: HomePageOptions) {
    this.#options = options;
    const { connection, host, sessions, unread, panel } = options;
    this.#link = this.#owned.add(new WebviewLink(panel.webview, HOME_REQUESTS, this.#handlers));
    this.#owned.add(
      panel.onDidChangeViewState(() => {
        if (!panel.visible) this.#isReady = false;
      }),
    );
    const soon = (): void => this.#showSoon();
    this.#owned.add(sessions.onDidChange(soon));
    this.#owned.add(unread.onDidChange(soon));
    this.#owned.add(connection.onDidChange(() => this.#onConnection()));
    this.#owned.add(connection.onDidChangeHosts(soon));
    this.#owned.add(workspace.onDidChangeWorkspaceFolders(soon));
    this.#owned.add(host.onDidChangeProfiles((changed) => void this.#readProfiles(changed)));
    this.#owned.onDispose(() => clearTimeout(this.#timer));
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #onConnection(): void {
    this.#showSoon();
    void this.#checkImages();
  }

  #showSoon(): void {
    if (!this.#isReady || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (!this.#isReady) return;
      this.#showState();
      this.#showSessions();
      void this.#checkImages();
    }, GATHER_MS);
  }

  #showState(): void {
    const { connection, sessions } = this.#options;
    const own = connection.own;
    const hosts = [own, ...connection.hosts.filter((one) => one !== own)];
    const value: HomeState = {
      hosts: hosts.map(homeHost).slice(0, 100),
      isListed: sessions.current !== undefined,
      profiles: hosts
        .flatMap((host) =>
          (this.#profiles.get(host) ?? []).map((profile) => ({ host: host.name, ...profile })),
        )
        .slice(0, MAX_STARTS),
      folders: localFolders()
        .map(({ uri, name }) => ({ uri: uri.toString(), name }))
        .slice(0, MAX_STARTS),
      images: this.#images,
      secrets: this.#secrets,
    };
    const text = JSON.stringify(value);
    if (text === this.#sentState) return;
    this.#sentState = text;
    this.#link.send('state', value);
  }

  /** Sends the sessions that are not what the page has. */
  #showSessions(): void {
    const { sessions, unread, connection } = this.#options;
    if (sessions.current === undefined) return;
    const { shown, left } = homeSessions(
      sessions.current,
      (id) => unread.countOf(id),
      (id) => connection.of(id).name,
    );
    const sent = this.#sentSessions;
    const next = new Map([...shown].map(([id, session]) => [id, JSON.stringify(session)]));
    const changed = [...shown.values()].filter(({ id }) => sent?.get(id) !== next.get(id));
    const removed = [...(sent?.keys() ?? [])].filter((id) => !next.has(id));
    this.#sentSessions = next;
    if (sent !== undefined && changed.length === 0 && removed.length === 0) return;
    this.#link.send('sessions', { isSnapshot: sent === undefined, changed, removed, left });
  }

  async #readProfiles(host: HostConnection): Promise<void> {
    const { peer } = host;
    if (!this.#isReady || peer === undefined) return;
    try {
      const { profiles } = await peer.call('profile/list', {});
      this.#profiles.set(
        host,
        profiles.map(({ name, agent }) => ({
          name,
          input: inputOfKind(agent.protocol),
        })),
      );
      this.#showSoon();
    } catch {
      // They stay as they were; the state of the connection says what is wrong.
    }
  }

  /** Asks, where nobody has used this home yet, whether sessions could start, and whether there are keys. */
  async #checkImages({ again = false } = {}): Promise<void> {
    const { connection, sessions } = this.#options;
    const { own } = connection;
    const { state } = own;
    if (!this.#isReady || state.kind !== 'connected' || this.#images === 'checking') return;
    const isDue = sessions.current?.length === 0 && this.#askedFor !== state.peer;
    if (!isDue && !again) return;
    this.#askedFor = state.peer;
    this.#images = 'checking';
    this.#showSoon();
    try {
      const [{ checks }, { secrets }] = await Promise.all([
        own.call('supervisor/doctor', {}),
        own.call('secret/list', {}),
      ]);
      const isMissing = checks.some(({ name, status }) => IMAGE_CHECKS.has(name) && status === 'problem');
      this.#images = isMissing ? 'missing' : 'there';
      this.#secrets = secrets.length;
    } catch {
      // The next connection asks again.
      this.#images = null;
    }
    this.#showSoon();
  }

  readonly #handlers: HomeHandlers = {
    ready: async ({ files }) => {
      const { connection } = this.#options;
      this.#isReady = true;
      this.#sentState = '';
      this.#sentSessions = undefined;
      connection.ensureConnecting();
      this.#showState();
      this.#showSessions();
      void this.#checkImages();
      const uploads = this.#files.keepOnly(files);
      await Promise.all(connection.hosts.map((host) => this.#readProfiles(host)));
      return { uploads };
    },
    upload: ({ bytes, ...part }) =>
      Promise.resolve({ isWhole: this.#files.receive({ ...part, bytes: Buffer.from(bytes, 'base64') }) }),
    dropUpload: ({ upload }) => {
      this.#files.drop(upload);
      return Promise.resolve({});
    },
    words: ({ session }) => this.#wordsOf(session),
    answer: async ({ session, question, answer: given }) => {
      await answer(this.#options.connection.of(session), { id: question }, given);
      return {};
    },
    start: ({ from, prompt, files }) => this.#start(from, prompt, files),
    connectHost: async ({ host }) => {
      const { connection } = this.#options;
      if (connection.host(host) === connection.own) connection.retry();
      else await commands.executeCommand('holdfast.connectHost', host);
      return {};
    },
    openFolder: async () => {
      await commands.executeCommand('workbench.action.files.openFolder');
      return {};
    },
    command: async ({ command }) => {
      await commands.executeCommand(`holdfast.${command}`);
      if (command === 'buildImages' || command === 'setSecret') void this.#checkImages({ again: true });
      return {};
    },
    sessionCommand: async ({ command, session }) => {
      await commands.executeCommand(`holdfast.${command}`, session);
      return {};
    },
  };

  async #wordsOf(session: string): Promise<LastMessage> {
    const host = this.#options.connection.of(session);
    const [{ items }, asked] = await Promise.all([
      host.call('conversation/read', { session, limit: LAST_ITEMS }),
      questionsOf(host, session),
    ]);
    return { ...lastMessage(items), ...asked };
  }

  async #start(from: Start, prompt: string, files: readonly HomeFile[]): Promise<{ session: string | null }> {
    const { connection } = this.#options;
    // Kept: the window's folders may be others when the project is deployed.
    const host = from.kind === 'profile' ? connection.host(from.host) : connection.own;
    const request = JSON.stringify([from, prompt, files]);
    this.#files.requireAll(files);
    if (this.#unconfirmed?.request !== request)
      this.#unconfirmed = { request, session: randomUUID(), turn: randomUUID() };
    const { session: sessionOp, turn: turnOp } = this.#unconfirmed;
    try {
      const profile = await profileOf({ host, home: connection.home }, this.#source(from));
      if (profile === undefined) return { session: null };
      await checkInput(host, profile, prompt);
      const session = await createSessionOf(connection, host, profile, sessionOp);
      const attachments = await this.#files.uploadTo(host, session.id, files);
      await host.call(
        'turn/start',
        { session: session.id, opId: turnOp, ...(attachments.length === 0 ? {} : { attachments }) },
        { bytes: Buffer.from(prompt, 'utf8') },
      );
      this.#unconfirmed = undefined;
      for (const { upload } of files) this.#files.drop(upload);
      return { session: session.id };
    } catch (error) {
      if (HoldfastError.from(error).code === 'image_not_found') void this.#checkImages({ again: true });
      throw error;
    }
  }

  #source(from: Start): SessionSource {
    switch (from.kind) {
      case 'profile':
        return { profile: from.name };
      case 'example':
        return { example: this.#options.example };
      case 'folder': {
        const folder = localFolders().find(({ uri }) => uri.toString() === from.uri);
        if (folder === undefined)
          throw new HoldfastError('not_found', 'The folder is no longer one of this window');
        return { folder };
      }
    }
  }
}

/** Before there is a session that could not use it. Errors: `invalid_params`. */
async function checkInput(host: HostConnection, profile: string, prompt: string): Promise<void> {
  const { profiles } = await host.call('profile/list', {});
  if (inputOfKind(profiles.find(({ name }) => name === profile)?.agent.protocol) !== 'json') return;
  try {
    JSON.parse(prompt);
  } catch {
    throw new HoldfastError('invalid_params', `${profile} takes JSON`, {
      why: 'its agent is a handler',
      next: 'write a value such as {"city": "Lima"}',
    });
  }
}

function localFolders() {
  return (workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === 'file');
}

function homeHost({ name, state }: HostConnection): HomeHost {
  // Nothing connects to another machine but a person.
  const isUnused = state.kind === 'unused' && name !== LOCAL;
  const { host, why } = isUnused ? { host: 'offline' as const, why: 'Not connected.' } : hostState(state);
  return { name, title: hostTitle(name), state: host, why: why === null ? null : why.slice(0, MAX_WHY) };
}
