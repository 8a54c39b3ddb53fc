import { EventEmitter, commands, window } from 'vscode';
import type { Disposable, Memento } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import type { Hunk, ReviewFile, ReviewState } from '../../protocol/review.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import type { SessionEvents } from '../history/session-events.ts';
import { sessionTitle } from '../sessions/listing.ts';
import type { SessionList } from '../sessions/session-list.ts';
import { AcceptedTexts } from './accepted-texts.ts';
import { ChangeTreeView, SHOW_TREE } from './change-tree-view.ts';
import type { ShownChange } from './change-uri.ts';
import { HunkMarks } from './hunk-marks.ts';
import { OpenReview, isNoReview } from './open-review.ts';
import { ReviewComments } from './review-comments.ts';
import { ReviewDecorations } from './review-decorations.ts';
import { StayingGroup } from './staying-group.ts';
import type { StayingFile } from './will-not-travel.ts';

/** The sessions whose reviews this window shows, for the time after a reload. */
const KEY = 'holdfast.reviews';
/** Whether the tree was open once: VS Code begins with it closed, and remembers what the person does. */
const TREE_KEY = 'holdfast.reviewTreeShown';
/** Set while the window shows a review. */
const CONTEXT = 'holdfast.reviewing';

/** The reviews that this window shows. They return after a reload; the supervisor has their decisions. */
export class OpenReviews implements Disposable {
  readonly #connection: Connection;
  readonly #sessions: SessionList;
  readonly #events: SessionEvents;
  readonly #state: Memento;
  readonly #owned = new DisposableStore();
  readonly #reviews = new Map<string, OpenReview>();
  /** By session, as `#reviews`. */
  readonly #staying = new Map<string, StayingGroup>();
  readonly #changed = this.#owned.add(new EventEmitter<string>());
  /** Fires with the session whose review has other changes or decisions, or is not shown any more. */
  readonly onDidChange = this.#changed.event;
  readonly #decorations: ReviewDecorations;
  readonly #marks: HunkMarks;
  #comments: ReviewComments | undefined;
  #accepted: AcceptedTexts | undefined;
  #tree: ChangeTreeView | undefined;

  constructor(options: {
    readonly connection: Connection;
    readonly sessions: SessionList;
    readonly events: SessionEvents;
    readonly state: Memento;
  }) {
    this.#connection = options.connection;
    this.#sessions = options.sessions;
    this.#events = options.events;
    this.#state = options.state;
    this.#decorations = this.#owned.add(
      new ReviewDecorations(({ session, path }) => this.of(session)?.fileAt(path)),
    );
    this.#owned.add(window.registerFileDecorationProvider(this.#decorations));
    this.#marks = this.#owned.add(new HunkMarks((shown) => this.hunksOf(shown)));
    this.#owned.add(options.connection.onDidConnect(() => void this.#restore()));
    this.#owned.add(options.sessions.onDidChange((sessions) => this.#closeDeleted(sessions)));
    this.#owned.onDispose(() => {
      for (const review of this.#reviews.values()) review.dispose();
    });
    if (this.#remembered.length > 0) options.connection.ensureConnecting();
  }

  /** The review of a session that this window shows. */
  of(session: string): OpenReview | undefined {
    return this.#reviews.get(session);
  }

  /** Made for the first who needs it: it is in the second bundle. */
  get comments(): ReviewComments {
    return (this.#comments ??= this.#owned.add(
      new ReviewComments({ connection: this.#connection, reviewOf: (session) => this.of(session) }),
    ));
  }

  /** As `comments`. */
  get #acceptedTexts(): AcceptedTexts {
    return (this.#accepted ??= this.#owned.add(new AcceptedTexts(this.#connection)));
  }

  /** As `comments`. */
  get tree(): ChangeTreeView {
    return (this.#tree ??= this.#owned.add(new ChangeTreeView(this)));
  }

  /** What a handoff of the session's review would leave behind. */
  stayingOf(session: string): readonly StayingFile[] {
    return this.#staying.get(session)?.files ?? [];
  }

  get all(): readonly OpenReview[] {
    return [...this.#reviews.values()];
  }

  /** Shows the review of a session; it is empty until it is refreshed or reloaded. */
  open(session: Session): OpenReview {
    const known = this.#reviews.get(session.id);
    if (known !== undefined) return known;
    const review = new OpenReview({ connection: this.#connection, events: this.#events, session });
    this.#reviews.set(session.id, review);
    const isShown = (): boolean => this.of(session.id) === review;
    const staying = new StayingGroup({
      connection: this.#connection,
      ...{ review, isShown },
      onShown: () => this.tree.refresh(),
    });
    this.#staying.set(session.id, staying);
    review.onDidChange(() => {
      void staying.refresh();
      this.tree.refresh();
      this.#decorations.refresh();
      this.#changed.fire(session.id);
      this.#marks.refresh();
      this.#acceptedTexts.refresh(session.id);
      void this.comments.refresh(review);
    });
    review.control.quickDiffProvider = this.#acceptedTexts.quickDiffOf(session.id);
    review.onDidEnd(() => void this.#showEnd(review));
    this.tree.refresh();
    this.#remember();
    return review;
  }

  /** Brings the reviews to the front. */
  async show(): Promise<void> {
    await commands.executeCommand('workbench.view.scm');
    if (this.#state.get<unknown>(TREE_KEY) === true) return;
    await commands.executeCommand(SHOW_TREE);
    await this.#state.update(TREE_KEY, true);
  }

  close(session: string): void {
    this.#reviews.get(session)?.dispose();
    this.#reviews.delete(session);
    this.#staying.delete(session);
    this.#changed.fire(session);
    this.#tree?.refresh();
    this.#comments?.forget(session);
    this.#remember();
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** The hunks of a change as they are decided now; undefined where the review has another version of it. */
  async hunksOf({
    session,
    path,
    id,
  }: ShownChange): Promise<
    { readonly file: ReviewFile; readonly state: ReviewState; readonly hunks: readonly Hunk[] } | undefined
  > {
    try {
      const { file, hunks } = await this.#connection.call('review/file', { session, path });
      return file.id === id ? { file, state: file.state, hunks } : undefined;
    } catch (error) {
      if (isNoReview(error)) return undefined;
      throw error;
    }
  }

  get #remembered(): readonly string[] {
    const stored = this.#state.get<unknown>(KEY);
    return Array.isArray(stored) ? stored.filter((one) => typeof one === 'string') : [];
  }

  #remember(): void {
    void this.#state.update(KEY, [...this.#reviews.keys()]);
    void commands.executeCommand('setContext', CONTEXT, this.#reviews.size > 0);
  }

  async #restore(): Promise<void> {
    const wanted = this.#remembered;
    if (wanted.length === 0) return;
    const sessions = await this.#sessions.list().catch(() => []);
    for (const id of wanted) {
      const session = sessions.find((one) => one.id === id);
      if (session === undefined) continue;
      try {
        await this.open(session).reload();
      } catch (error) {
        // Without a connection the next one tries again.
        if (isNoReview(error)) this.close(id);
      }
    }
  }

  /** Also another base ends a review, and a new one is open at once. */
  async #showEnd(review: OpenReview): Promise<void> {
    try {
      await review.reload();
    } catch (error) {
      if (!isNoReview(error) || this.of(review.session.id) !== review) return;
      this.close(review.session.id);
      window.setStatusBarMessage(
        `The review of ${sanitize(sessionTitle(review.session))} has ended: what was accepted is handed off`,
        10_000,
      );
    }
  }

  #closeDeleted(sessions: readonly Session[]): void {
    for (const id of [...this.#reviews.keys()]) {
      // While nothing answers, the list is empty.
      if (this.#connection.of(id).peer === undefined) continue;
      const session = sessions.find((one) => one.id === id);
      if (session === undefined || session.status === 'deleted') this.close(id);
    }
  }
}
