import { EventEmitter, workspace } from 'vscode';
import type { Disposable, FileDecoration, FileDecorationProvider, Uri } from 'vscode';
import type { SessionEvent } from '../../protocol/entities.ts';
import type { Change } from '../../protocol/snapshots.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import type { Connection } from '../connection/connection.ts';
import type { ChangeTimes } from '../files/change-times.ts';
import { SCHEME, locate, workspaceUri } from '../files/location.ts';
import type { SessionEvents } from '../history/session-events.ts';
import { sessionsInWindow } from '../sessions/session-window.ts';
import { changedSinceTurn } from './changed-paths.ts';
import type { OpenReviews } from './open-reviews.ts';
import { decorationOf } from './review-decorations.ts';

/** What is known of a session's files. */
interface Known {
  /** When the last turn started, ms since 1970. */
  turnStart: number;
  /** When `kinds` was made; before that, and while a turn runs, times of changes say what is marked. */
  comparedAt: number;
  kinds: ReadonlyMap<string, Change['kind']>;
  subscription?: Disposable;
  isComparing: boolean;
  isWanted: boolean;
}

/** When a window has first seen what a review compares. */
interface SeenReview {
  readonly target: string;
  readonly at: number;
}

/**
 * Marks the files of this window's sessions in the Explorer and in tabs: with an open review what that has, else what has changed since
 * the last turn started. Both come from comparisons of snapshots, so they know files that nobody has listed.
 */
export class WorkspaceMarks implements FileDecorationProvider, Disposable {
  readonly #connection: Connection;
  readonly #events: SessionEvents;
  readonly #times: ChangeTimes;
  readonly #reviews: Pick<OpenReviews, 'of' | 'onDidChange'>;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Uri[] | undefined>());
  readonly onDidChangeFileDecorations = this.#changed.event;
  readonly #known = new Map<string, Known>();
  readonly #seen = new Map<string, SeenReview>();

  constructor(options: {
    readonly connection: Connection;
    readonly events: SessionEvents;
    readonly times: ChangeTimes;
    readonly reviews: Pick<OpenReviews, 'of' | 'onDidChange'>;
  }) {
    this.#connection = options.connection;
    this.#events = options.events;
    this.#times = options.times;
    this.#reviews = options.reviews;
    this.#owned.add(options.times.onDidChange((uris) => this.#changed.fire(uris)));
    this.#owned.add(options.reviews.onDidChange((session) => this.#showReview(session)));
    this.#owned.add(options.connection.onDidConnect(() => void this.#subscribe()));
    this.#owned.add(workspace.onDidChangeWorkspaceFolders(() => void this.#subscribe()));
    this.#owned.onDispose(() => {
      for (const { subscription } of this.#known.values()) void subscription?.dispose();
    });
    if (options.connection.connected.length > 0) void this.#subscribe();
  }

  dispose(): void {
    this.#owned.dispose();
  }

  provideFileDecoration(uri: Uri): FileDecoration | undefined {
    if (uri.scheme !== SCHEME) return undefined;
    const location = locate(uri);
    if (location.kind !== 'workspace') return undefined;
    const { session, path } = location;
    const file = this.#reviews.of(session)?.fileAt(path);
    // The workspace has the base of what was rejected.
    if (file !== undefined) return file.state === 'rejected' ? undefined : mark(file.kind, 'in the review');
    const seen = this.#seen.get(session);
    const known = this.#known.get(session);
    const kind = seen === undefined ? known?.kinds.get(path) : undefined;
    if (kind !== undefined) return mark(kind, 'since the last turn started');
    const since = seen?.at ?? known?.comparedAt;
    if (since === undefined || this.#times.lastChangeOf(uri) < since) return undefined;
    return mark('modified', 'a moment ago');
  }

  async #subscribe(): Promise<void> {
    for (const session of sessionsInWindow()) {
      if (this.#known.has(session)) continue;
      const known: Known = {
        ...{ turnStart: Infinity, comparedAt: Infinity, kinds: new Map() },
        ...{ isComparing: false, isWanted: false },
      };
      this.#known.set(session, known);
      try {
        const [{ turns }, shown] = await Promise.all([
          this.#connection.call('turn/list', { session, limit: 1 }),
          this.#connection.call('session/show', { session }),
        ]);
        if (this.#owned.isDisposed) return;
        const [last] = turns;
        if (last !== undefined) known.turnStart = Date.parse(last.startedAt ?? last.createdAt);
        known.comparedAt = known.turnStart;
        known.subscription = this.#events.follow(session, shown.session.lastSeq, (event) =>
          this.#onEvent(event, known),
        );
        this.#changed.fire(undefined);
        if (last !== undefined && last.endedAt !== null) void this.#compare(session, known);
      } catch {
        // The session was deleted, or the connection broke: the next connection subscribes again.
        this.#known.delete(session);
      }
    }
  }

  #onEvent({ type, sessionId, at }: SessionEvent, known: Known): void {
    if (type === 'turn.started') {
      known.turnStart = Date.parse(at);
      this.#show(sessionId, known, new Map(), known.turnStart);
    }
    if (type === 'turn.ended' || type === 'workspace.restored') void this.#compare(sessionId, known);
  }

  /** One comparison at a time. Where it fails, the times of changes say what is marked. */
  async #compare(session: string, known: Known): Promise<void> {
    known.isWanted = true;
    if (known.isComparing) return;
    known.isComparing = true;
    try {
      while (known.isWanted && !this.#owned.isDisposed) {
        known.isWanted = false;
        const [at, of] = [Date.now(), known.turnStart];
        const kinds = await changedSinceTurn(this.#connection, session);
        // Another turn has started: what it changes is not known yet.
        if (known.turnStart === of) this.#show(session, known, kinds, at);
      }
    } catch {
      // As said above.
    } finally {
      known.isComparing = false;
    }
  }

  #show(session: string, known: Known, kinds: Known['kinds'], at: number): void {
    const paths = new Set([...known.kinds.keys(), ...kinds.keys()]);
    known.kinds = kinds;
    known.comparedAt = at;
    this.#fire(session, paths);
  }

  #showReview(session: string): void {
    const review = this.#reviews.of(session);
    const target = review?.review?.target.root;
    const before = this.#seen.get(session);
    if (target === undefined) this.#seen.delete(session);
    else if (before?.target !== target) this.#seen.set(session, { target, at: Date.now() });
    const paths = new Set(review?.files.map(({ path }) => path));
    for (const path of this.#known.get(session)?.kinds.keys() ?? []) paths.add(path);
    this.#fire(session, paths);
  }

  /** All is drawn again; VS Code asks at once for paths that are named, and marks the folders above them. */
  #fire(session: string, paths: ReadonlySet<string>): void {
    this.#changed.fire(undefined);
    const folder = workspace.workspaceFolders?.find(({ uri }) => {
      const location = uri.scheme === SCHEME ? locate(uri) : undefined;
      return location !== undefined && location.kind !== 'nowhere' && location.session === session;
    });
    if (folder === undefined) return;
    const uris = [...paths].map((path) =>
      folder.uri.with({ path: workspaceUri(this.#connection, session, path).path }),
    );
    if (uris.length > 0) this.#changed.fire(uris);
  }
}

function mark(kind: Change['kind'], when: string): FileDecoration {
  const decoration = decorationOf(kind, when);
  decoration.propagate = kind !== 'deleted';
  return decoration;
}
