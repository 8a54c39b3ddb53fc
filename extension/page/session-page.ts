import { randomUUID } from 'node:crypto';
import { commands, env, Uri, window } from 'vscode';
import type { Disposable, WebviewPanel } from 'vscode';
import type { Attachment, AttachmentRef } from '../../protocol/attachments.ts';
import type { Session } from '../../protocol/entities.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import { inputOfKind } from '../../protocol/turn-kinds.ts';
import { LATE_REQUESTS } from '../../webview/late-messages.ts';
import type { LateRequests, ToLate } from '../../webview/late-messages.ts';
import { MAX_FOUND_FILES, REQUESTS } from '../../webview/messages.ts';
import type { RequestResult } from '../../webview/link.ts';
import type { PageState, RequestHandlers, Requests, ToPage } from '../../webview/messages.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import { whyTooLate } from '../base/too-late.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { workspaceUri } from '../files/location.ts';
import { readPickers } from '../sessions/agent-settings.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { ConversationFollower } from './conversation-follower.ts';
import { showIcon } from './fill-panel.ts';
import { hostState } from './host-state.ts';
import { lateHandlers } from './late-handlers.ts';
import { showTurnChanges } from './stored-paths.ts';
import { turnLines } from './turn-lines.ts';
import { snapshotsOfTurn } from '../snapshots/turn-snapshots.ts';
import type { TurnSnapshots } from '../snapshots/turn-snapshots.ts';
import { WebviewLink } from './webview-link.ts';

/** The most of a content that a page shows. */
const MAX_CONTENT = 2 ** 20;
const SNAPSHOT_EVENTS: ReadonlySet<string> = new Set(['snapshot', 'restored']);

export interface SessionPageOptions {
  readonly connection: Connection;
  readonly sessions: SessionList;
  readonly session: string;
  readonly panel: WebviewPanel;
  /** The folder of the extension. */
  readonly extension: Uri;
  /** A person looks at the page. */
  readonly onSeen: (session: Session) => void;
}

/**
 * One open page: answers what it asks, and sends it the state of the session and its conversation. A page that nobody
 * sees gets nothing; VS Code keeps no document for it, and it starts over when it is shown.
 */
export class SessionPage implements Disposable {
  readonly #options: SessionPageOptions;
  readonly #owned = new DisposableStore();
  readonly #link: WebviewLink<Requests & LateRequests, ToPage & ToLate>;
  #follower: ConversationFollower | undefined;
  /** The one that the tab has. */
  #icon = 'icon';
  #input: PageState['input'] = 'prompt';
  #counting: Promise<unknown> = Promise.resolve();
  /** The state as last sent, because a list changes for many reasons. */
  #sent = '';
  /** The forks and origins that its graph of snapshots may name, as last seen. */
  #relatives = '';

  constructor(options: SessionPageOptions) {
    this.#options = options;
    const { connection, sessions, session, panel } = options;
    const handlers = { ...this.#handlers, ...lateHandlers(connection, session) };
    this.#link = this.#owned.add(new WebviewLink(panel.webview, { ...REQUESTS, ...LATE_REQUESTS }, handlers));
    this.#owned.add(panel.onDidChangeViewState(() => this.#onVisibility()));
    this.#owned.add(
      sessions.onDidChange((all) => {
        this.#showState();
        this.#showRelatives(all);
      }),
    );
    this.#owned.add(connection.onDidChange(() => this.#showState()));
    this.#owned.onDispose(() => this.#stopFollowing());
    this.#showTitle();
  }

  get #host(): HostConnection {
    return this.#options.connection.of(this.#options.session);
  }

  get session(): Session | undefined {
    return this.#options.sessions.current?.find(({ id }) => id === this.#options.session);
  }

  get isVisible(): boolean {
    return this.#options.panel.visible;
  }

  reveal(): void {
    this.#options.panel.reveal();
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #onVisibility(): void {
    // A hidden page has no document; it says `ready` when it is shown again.
    if (!this.#options.panel.visible) this.#stopFollowing();
    else this.#markSeen();
  }

  #markSeen(): void {
    const { session } = this;
    if (session !== undefined && this.#options.panel.visible && window.state.focused) {
      this.#options.onSeen(session);
    }
  }

  #stopFollowing(): void {
    this.#follower?.dispose();
    this.#follower = undefined;
  }

  /** Needs no supervisor: the follower begins with every connection, the next one included. */
  #begin(): void {
    const { connection, session } = this.#options;
    this.#stopFollowing();
    this.#sent = '';
    this.#showState();
    this.#follower = new ConversationFollower({
      connection,
      session,
      begin: (page) => {
        this.#link.send('begin', page);
        void this.#findInput();
        this.#link.send('snapshotsChanged', {});
        void this.sendPickers();
      },
      send: (batch, items, chunks) => {
        this.#link.send('changed', { batch, items, chunks });
        if (items.some((item) => item.type === 'mark' && SNAPSHOT_EVENTS.has(item.mark))) {
          this.#link.send('snapshotsChanged', {});
        }
        if (items.some(({ type }) => type === 'option' || type === 'end')) void this.sendPickers();
        this.#markSeen();
      },
    });
    this.#markSeen();
  }

  async #findInput(): Promise<void> {
    try {
      await this.#options.sessions.list();
      const { profiles } = await this.#host.call('profile/list', {});
      const profile = profiles.find(({ name }) => name === this.session?.profile);
      this.#input = inputOfKind(profile?.agent.protocol);
      this.#showState();
    } catch {
      // It stays as it was; the next connection asks again.
    }
  }

  /** What a person can choose, as it is now. */
  async sendPickers(): Promise<void> {
    try {
      const pickers = await readPickers(this.#options.connection, this.#options.session);
      this.#link.send('pickers', { pickers });
    } catch {
      // They stay as they were; the state of the connection says what is wrong.
    }
  }

  #showState(): void {
    this.#showTitle();
    const { sessions } = this.#options;
    const { peer, state } = this.#host;
    const session = this.session ?? null;
    const isDeleted = session === null && peer !== undefined && (sessions.current?.length ?? 0) > 0;
    const value: PageState = { session, isDeleted, input: this.#input, ...hostState(state) };
    const text = JSON.stringify(value);
    if (text === this.#sent) return;
    this.#sent = text;
    this.#link.send('state', value);
  }

  /** A fork is an event of the new session: this one has none that says it. */
  #showRelatives(all: readonly Session[]): void {
    const lineage = this.session?.lineage ?? null;
    const relatives = all
      .filter((one) => lineage !== null && one.lineage === lineage)
      .map(({ id, name }) => `${id} ${name}`)
      .join('\n');
    if (relatives === this.#relatives) return;
    this.#relatives = relatives;
    this.#link.send('snapshotsChanged', {});
  }

  #showTitle(): void {
    const { panel, extension } = this.#options;
    const { session } = this;
    if (session === undefined) return;
    const { waiting, runningTurn } = session;
    const [icon, words] =
      waiting > 0
        ? (['icon-waiting', ' – waiting for you'] as const)
        : runningTurn !== null
          ? (['icon-running', ' – running'] as const)
          : (['icon', ''] as const);
    panel.title = `${sanitize(sessionTitle(session), 40)}${words}`;
    if (icon === this.#icon) return;
    this.#icon = icon;
    showIcon(panel, extension, icon);
  }

  readonly #handlers: RequestHandlers = {
    ready: () => {
      this.#begin();
      return Promise.resolve({});
    },
    shown: async ({ batch }) => {
      this.#follower?.confirm(batch);
      return {};
    },
    read: ({ before, after }) =>
      this.#options.connection.call('conversation/read', {
        session: this.#options.session,
        ...(before === undefined ? {} : { before }),
        ...(after === undefined ? {} : { after }),
      }),
    content: async ({ sha256 }) => {
      const { result, bytes } = await this.#options.connection.callWithBytes('content/read', {
        session: this.#options.session,
        id: sha256,
        offset: 0,
        limit: MAX_CONTENT,
      });
      return { text: bytes.toString('utf8'), isCut: result.total > bytes.byteLength };
    },
    prompt: async ({ text, opId, attachments }) => {
      const { turn } = await this.#options.connection.call(
        'turn/start',
        { session: this.#options.session, opId, ...inputOf(text, attachments) },
        { bytes: Buffer.from(text, 'utf8') },
      );
      return { hasEnded: turn.endedAt !== null };
    },
    choose: async ({ what, value }) => {
      const { connection, session } = this.#options;
      await connection.call('agent/set', { session, option: what, value });
      await this.sendPickers();
      return {};
    },
    stop: async () => {
      const turn = this.session?.runningTurn;
      if (turn !== undefined && turn !== null) await this.#host.call('turn/cancel', { turn });
      return {};
    },
    edit: async ({ turnId, text, attachments }) => {
      await this.#options.connection.call(
        'turn/edit',
        { turn: turnId, opId: randomUUID(), ...inputOf(text, attachments) },
        { bytes: Buffer.from(text, 'utf8') },
      );
      return {};
    },
    takeBack: async ({ turnId }) => {
      await this.#host.call('turn/cancel', { turn: turnId });
      return {};
    },
    answer: async ({ permissionId, answer }) => {
      const given = { permission: permissionId, answer, opId: randomUUID() };
      try {
        await this.#host.call('permission/answer', given);
        return { tooLate: null };
      } catch (error) {
        const tooLate = whyTooLate(error);
        if (tooLate === undefined) throw error;
        return { tooLate };
      }
    },
    allowHost: ({ host }) => this.#run('allowHost', host),
    openFile: async ({ path, line }) => {
      const uri = workspaceUri(this.#options.connection, this.#options.session, absolutePath(path));
      const at = line === null || line < 1 ? undefined : line - 1;
      const selection =
        at === undefined ? undefined : { start: { line: at, character: 0 }, end: { line: at, character: 0 } };
      await commands.executeCommand('vscode.open', uri, { preview: true, ...(selection && { selection }) });
      return {};
    },
    findFiles: async ({ query }) => {
      const { paths } = await this.#options.connection.call('files/find', {
        session: this.#options.session,
        ...{ query, limit: MAX_FOUND_FILES, hidden: true, exclude: ['**/.git'] },
      });
      return { paths: paths.map((path) => path.slice(WORKSPACE.length + 1)) };
    },
    openLink: async ({ url }) => {
      const uri = Uri.parse(url, true);
      // VS Code asks before it opens an address that the person has not trusted.
      if (['http', 'https', 'mailto'].includes(uri.scheme)) await env.openExternal(uri);
      return {};
    },
    copy: async ({ text }) => {
      await env.clipboard.writeText(text);
      return {};
    },
    turnLines: ({ turnId }) => this.#linesOf(turnId),
    changesOfTurn: async ({ turnId }) => {
      const sides = await showTurnChanges(this.#options, turnId);
      return sides === null ? {} : this.#run('compareSnapshots', ...sides);
    },
    snapshotBeforeTurn: async ({ turnId }) => ({ snapshot: (await this.#snapshotsOf(turnId)).before }),
    forkBeforeTurn: async ({ turnId }) => this.#run('forkSession', (await this.#snapshotsOf(turnId)).before),
    forkSnapshot: ({ snapshot }) => this.#run('forkSession', snapshot),
    compareSnapshots: ({ from, to }) => this.#run('compareSnapshots', from, to ?? 'now'),
    command: ({ command }) =>
      command === 'connect' || command === 'checkEngine' ? run(`holdfast.${command}`) : this.#run(command),
  };

  #snapshotsOf(turnId: string): Promise<TurnSnapshots> {
    return snapshotsOfTurn(this.#options.connection, this.#options.session, turnId);
  }

  /** One turn at a time: a page may show many of them. */
  #linesOf(turnId: string): Promise<RequestResult<Requests, 'turnLines'>> {
    const next = this.#counting.then(async () => {
      const { status, runningTurn } = this.session ?? {};
      // A look at the files starts no sandbox, and says nothing about a turn while the next one works.
      const isAlone = runningTurn === null || runningTurn === turnId;
      const mayScan = (status === 'active' || status === 'idle') && isAlone;
      const { connection, session } = this.#options;
      return { lines: await turnLines(connection, session, turnId, mayScan) };
    });
    this.#counting = next.catch(() => undefined);
    return next;
  }

  /** Runs a command on this session. The command reports its own errors. */
  #run(command: string, ...args: readonly string[]): Promise<Record<string, never>> {
    return run(`holdfast.${command}`, this.#options.session, ...args);
  }
}

async function run(command: string, ...args: readonly string[]): Promise<Record<string, never>> {
  await commands.executeCommand(command, ...args);
  return {};
}

/** Beside the bytes of the text, which an empty one does not have. */
function inputOf(text: string, attachments: readonly Attachment[]) {
  return {
    ...(text === '' ? { prompt: '' } : {}),
    attachments: attachments.map((one): AttachmentRef =>
      one.kind === 'link' ? { path: one.path } : { content: one.content.sha256, name: one.name },
    ),
  };
}

/** Paths as agents write them: absolute below `/workspace`, or relative to it. */
function absolutePath(path: string): string {
  if (path === WORKSPACE || path.startsWith(`${WORKSPACE}/`)) return path;
  return `${WORKSPACE}/${path.replace(/^(?:\.?\/)+/, '')}`;
}
