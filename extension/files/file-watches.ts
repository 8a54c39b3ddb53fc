import { Disposable, FileChangeType } from 'vscode';
import type { FileChangeEvent, Uri } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import type { FileChange } from '../../protocol/watch.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { workspaceUri } from './location.ts';

const MOST_EXCLUDES = 200;
const LONGEST_EXCLUDE = 1000;
const AGAIN_MS = 2_000;
const LONGEST_AGAIN_MS = 60_000;

const KINDS = {
  created: FileChangeType.Created,
  changed: FileChangeType.Changed,
  deleted: FileChangeType.Deleted,
} as const satisfies Record<FileChange['kind'], FileChangeType>;

interface Watch {
  readonly session: string;
  readonly path: string;
  readonly recursive: boolean;
  readonly excludes: readonly string[];
  /** What the supervisor calls it, on the connection that it was asked for on. */
  subscription: { readonly peer: SupervisorPeer; readonly id: string } | undefined;
  opening: boolean;
  /** It has been open, or would have been: whatever comes after the gap needs another look. */
  begun: boolean;
  failures: number;
  again: NodeJS.Timeout | undefined;
  ended: boolean;
}

/** What VS Code wants to be told of, kept up over lost connections; after a gap everything below is looked at again. */
export class FileWatches implements Disposable {
  readonly #connection: Connection;
  readonly #tell: (events: FileChangeEvent[]) => void;
  readonly #lookAgain: (session: string, path: string) => void;
  readonly #watches = new Set<Watch>();
  /** Sessions that were looked at while no watch told of their changes. */
  readonly #unwatched = new Set<string>();
  readonly #owned = new DisposableStore();

  constructor(options: {
    readonly connection: Connection;
    readonly tell: (events: FileChangeEvent[]) => void;
    /** Something below may have changed without being told of. */
    readonly lookAgain: (session: string, path: string) => void;
  }) {
    this.#connection = options.connection;
    this.#tell = options.tell;
    this.#lookAgain = options.lookAgain;
    this.#owned.add(this.#connection.onDidConnect((peer) => this.#listen(peer)));
    this.#owned.add(
      this.#connection.onDidChange(({ kind }) => {
        if (kind === 'connected') for (const watch of this.#watches) void this.#open(watch);
      }),
    );
    if (this.#connection.peer !== undefined) this.#listen(this.#connection.peer);
  }

  dispose(): void {
    for (const watch of this.#watches) this.#end(watch);
    this.#owned.dispose();
  }

  /** `path`: of the workspace. */
  watch(
    session: string,
    path: string,
    options: { readonly recursive: boolean; readonly excludes: readonly string[] },
  ): Disposable {
    const watch: Watch = {
      session,
      path,
      recursive: options.recursive,
      excludes: options.excludes
        .filter((glob) => glob !== '' && glob.length <= LONGEST_EXCLUDE)
        .slice(0, MOST_EXCLUDES),
      subscription: undefined,
      opening: false,
      begun: false,
      failures: 0,
      again: undefined,
      ended: false,
    };
    this.#watches.add(watch);
    this.#connection.ensureConnecting();
    void this.#open(watch);
    return new Disposable(() => this.#end(watch));
  }

  /** Something of a session is about to be read: what becomes of it is told by an open watch, else there has to be another look. */
  recordAccess(session: string): void {
    const isWatched = [...this.#watches].some((one) => one.session === session && this.#isOpen(one));
    if (!isWatched) this.#unwatched.add(session);
  }

  #isOpen({ subscription }: Watch): boolean {
    return subscription !== undefined && subscription.peer === this.#connection.peer;
  }

  #listen(peer: SupervisorPeer): void {
    // The listener goes with its peer.
    peer.onNotification('files/changed', ({ subscription, changes, overflow, ended }) => {
      const watch = [...this.#watches].find(
        (one) => one.subscription?.peer === peer && one.subscription.id === subscription,
      );
      if (watch === undefined) return;
      const events = changes.map(({ path, kind }) => ({
        type: KINDS[kind],
        uri: workspaceUri(watch.session, path),
      }));
      if (events.length > 0) this.#tell(events);
      if (overflow) this.#lookAgain(watch.session, watch.path);
      if (ended) {
        watch.subscription = undefined;
        this.#later(watch);
      }
    });
  }

  async #open(watch: Watch): Promise<void> {
    const { peer } = this.#connection;
    if (peer === undefined || watch.ended || watch.opening || watch.subscription?.peer === peer) return;
    clearTimeout(watch.again);
    watch.opening = true;
    try {
      const { session, path, recursive, excludes } = watch;
      const { subscription } = await peer.call('files/watch', {
        session,
        path,
        recursive,
        excludes: [...excludes],
      });
      watch.subscription = { peer, id: subscription };
      watch.failures = 0;
      if (this.#unwatched.delete(session) || watch.begun) this.#lookAgain(session, path);
      watch.begun = true;
    } catch (error) {
      this.#failed(watch, error);
    } finally {
      watch.opening = false;
    }
    // Given up, or connected anew, while it was being opened.
    if (this.#isEnded(watch)) this.#close(watch);
    else if (watch.subscription !== undefined && this.#connection.peer !== peer) void this.#open(watch);
  }

  #failed(watch: Watch, error: unknown): void {
    const { code } = HoldfastError.from(error);
    // The session is gone for good.
    if (code === 'not_found') return;
    watch.begun = true;
    this.#later(watch);
  }

  #later(watch: Watch): void {
    if (watch.ended) return;
    clearTimeout(watch.again);
    const delay = Math.min(LONGEST_AGAIN_MS, AGAIN_MS * 2 ** Math.min(watch.failures, 10));
    watch.failures += 1;
    watch.again = setTimeout(() => void this.#open(watch), delay);
  }

  /** The compiler does not see that it may have ended while something was waited for. */
  #isEnded(watch: Watch): boolean {
    return watch.ended;
  }

  #end(watch: Watch): void {
    watch.ended = true;
    clearTimeout(watch.again);
    this.#watches.delete(watch);
    this.#close(watch);
  }

  #close(watch: Watch): void {
    const { subscription } = watch;
    if (subscription === undefined) return;
    watch.subscription = undefined;
    // Where the connection has ended, so has the watch.
    void subscription.peer.call('files/unwatch', { subscription: subscription.id }).catch(() => undefined);
  }
}

/** An event that makes VS Code look at a folder again: it believes that something new is in it. */
export function refreshFolderEvent(folder: Uri): FileChangeEvent {
  const path = folder.path.endsWith('/') ? folder.path : `${folder.path}/`;
  return { type: FileChangeType.Created, uri: folder.with({ path: `${path}.holdfast-look-again` }) };
}
