import { Disposable, FileChangeType } from 'vscode';
import type { FileChangeEvent, Uri } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { SupervisorPeer } from '../../protocol/client/connect.ts';
import type { FileChange } from '../../protocol/watch.ts';
import type { Connection } from '../connection/connection.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { siblingUri } from './location.ts';

const MAX_EXCLUDES = 200;
const MAX_EXCLUDE_CHARACTERS = 1000;
const RETRY_MS = 2_000;
const MAX_RETRY_MS = 60_000;

const KINDS = {
  created: FileChangeType.Created,
  changed: FileChangeType.Changed,
  deleted: FileChangeType.Deleted,
} as const satisfies Record<FileChange['kind'], FileChangeType>;

interface Watch {
  /** As VS Code gave it: changes are reported with its authority. */
  readonly uri: Uri;
  readonly session: string;
  readonly path: string;
  readonly recursive: boolean;
  readonly excludes: readonly string[];
  /** The supervisor's id of the watch, and the connection that it belongs to. */
  subscription: { readonly peer: SupervisorPeer; readonly id: string } | undefined;
  isOpening: boolean;
  /** Whether it was open before or failed to open. Changes may then have been missed, so opening it rescans. */
  needsRescan: boolean;
  failures: number;
  retry: NodeJS.Timeout | undefined;
  isEnded: boolean;
}

/** The watches of VS Code. They survive lost connections: after a gap VS Code reads everything below again. */
export class FileWatches implements Disposable {
  readonly #connection: Connection;
  readonly #emit: (events: FileChangeEvent[]) => void;
  readonly #rescan: (folder: Uri, session: string) => void;
  readonly #watches = new Set<Watch>();
  /** Sessions whose files were read while no watch was open. */
  readonly #unwatched = new Set<string>();
  readonly #owned = new DisposableStore();

  constructor(options: {
    readonly connection: Connection;
    readonly emit: (events: FileChangeEvent[]) => void;
    /** Changes below the folder may have been missed. */
    readonly rescan: (folder: Uri, session: string) => void;
  }) {
    this.#connection = options.connection;
    this.#emit = options.emit;
    this.#rescan = options.rescan;
    this.#owned.add(this.#connection.onDidConnect((peer) => this.#listen(peer)));
    this.#owned.add(
      this.#connection.onDidChange(() => {
        for (const watch of this.#watches) {
          if (this.#connection.of(watch.session).state.kind === 'connected') void this.#open(watch);
        }
      }),
    );
    for (const { peer } of this.#connection.connected) this.#listen(peer);
  }

  dispose(): void {
    for (const watch of this.#watches) this.#end(watch);
    this.#owned.dispose();
  }

  /** `path`: the path of the URI in the workspace. */
  watch(
    uri: Uri,
    { session, path }: { readonly session: string; readonly path: string },
    options: { readonly recursive: boolean; readonly excludes: readonly string[] },
  ): Disposable {
    const watch: Watch = {
      uri,
      session,
      path,
      recursive: options.recursive,
      excludes: options.excludes
        .filter((glob) => glob !== '' && glob.length <= MAX_EXCLUDE_CHARACTERS)
        .slice(0, MAX_EXCLUDES),
      subscription: undefined,
      isOpening: false,
      needsRescan: false,
      failures: 0,
      retry: undefined,
      isEnded: false,
    };
    this.#watches.add(watch);
    this.#connection.of(session).ensureConnecting();
    void this.#open(watch);
    return new Disposable(() => this.#end(watch));
  }

  /**
   * Files of the session are about to be read. Without an open watch their changes are missed, so the next one rescans.
   */
  recordAccess(session: string): void {
    const isWatched = [...this.#watches].some((one) => one.session === session && this.#isOpen(one));
    if (!isWatched) this.#unwatched.add(session);
  }

  #isOpen({ session, subscription }: Watch): boolean {
    return subscription !== undefined && subscription.peer === this.#connection.of(session).peer;
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
        uri: siblingUri(watch.uri, path),
      }));
      if (events.length > 0) this.#emit(events);
      if (overflow) this.#rescan(siblingUri(watch.uri, watch.path), watch.session);
      if (ended) {
        watch.subscription = undefined;
        this.#scheduleRetry(watch);
      }
    });
  }

  async #open(watch: Watch): Promise<void> {
    const { peer } = this.#connection.of(watch.session);
    if (peer === undefined || watch.isEnded || watch.isOpening || watch.subscription?.peer === peer) return;
    clearTimeout(watch.retry);
    watch.isOpening = true;
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
      if (this.#unwatched.delete(session) || watch.needsRescan) {
        this.#rescan(siblingUri(watch.uri, path), session);
      }
      watch.needsRescan = true;
    } catch (error) {
      this.#onFailure(watch, error);
    } finally {
      watch.isOpening = false;
    }
    // VS Code may have disposed of the watch, or the connection may have changed, while it was opened.
    if (this.#isEnded(watch)) this.#close(watch);
    else if (watch.subscription !== undefined && this.#connection.of(watch.session).peer !== peer)
      void this.#open(watch);
  }

  #onFailure(watch: Watch, error: unknown): void {
    const { code } = HoldfastError.from(error);
    // The session was deleted.
    if (code === 'not_found') return;
    watch.needsRescan = true;
    this.#scheduleRetry(watch);
  }

  #scheduleRetry(watch: Watch): void {
    if (watch.isEnded) return;
    clearTimeout(watch.retry);
    const delay = Math.min(MAX_RETRY_MS, RETRY_MS * 2 ** Math.min(watch.failures, 10));
    watch.failures += 1;
    watch.retry = setTimeout(() => void this.#open(watch), delay);
  }

  /** A method, because the compiler does not see that the value may change during an `await`. */
  #isEnded(watch: Watch): boolean {
    return watch.isEnded;
  }

  #end(watch: Watch): void {
    watch.isEnded = true;
    clearTimeout(watch.retry);
    this.#watches.delete(watch);
    this.#close(watch);
  }

  #close(watch: Watch): void {
    const { subscription } = watch;
    if (subscription === undefined) return;
    watch.subscription = undefined;
    // A closed connection has ended the watch already.
    void subscription.peer.call('files/unwatch', { subscription: subscription.id }).catch(() => undefined);
  }
}

/** An event that makes VS Code read a folder again: the creation of a file in it that does not exist. */
export function refreshFolderEvent(folder: Uri): FileChangeEvent {
  const path = folder.path.endsWith('/') ? folder.path : `${folder.path}/`;
  return { type: FileChangeType.Created, uri: folder.with({ path: `${path}.holdfast-look-again` }) };
}
