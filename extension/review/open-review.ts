import { isDeepStrictEqual } from 'node:util';
import { EventEmitter, StatusBarAlignment, scm, window } from 'vscode';
import type {
  Disposable,
  SourceControl,
  SourceControlResourceGroup,
  SourceControlResourceState,
  StatusBarItem,
  Uri,
} from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Review, ReviewBase, ReviewFile } from '../../protocol/review.ts';
import { REVIEW_LIMITS } from '../../protocol/review.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import type { SessionEvents } from '../history/session-events.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { changeUri } from './change-uri.ts';
import { REVIEW_GROUPS, describeChange, groupOf, isUndecided } from './review-model.ts';
import type { ReviewGroup } from './review-model.ts';

/** The `scmProvider` of menus. */
const PROVIDER = 'holdfast-review';

const GROUPS: readonly ReviewGroup[] = ['closely', 'toReview', 'aside', 'accepted', 'mixed', 'rejected'];

/** A change in the Source Control view. Commands get it as their argument. */
export interface ChangeResource extends SourceControlResourceState {
  readonly review: OpenReview;
  readonly file: ReviewFile;
}

export interface OpenReviewOptions {
  readonly connection: Connection;
  readonly events: SessionEvents;
  readonly session: Session;
}

/** The review of one session as this window shows it: what the supervisor knows, and its place in the Source Control view. */
export class OpenReview implements Disposable {
  readonly session: Session;
  readonly #name: string;
  readonly #connection: Connection;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<undefined>());
  readonly #ended = this.#owned.add(new EventEmitter<undefined>());
  readonly #control: SourceControl;
  /** Not a status bar command of the source control: VS Code shows those only of the repository in focus. */
  readonly #statusItem: StatusBarItem;
  readonly #groups: Readonly<Record<ReviewGroup, SourceControlResourceGroup>>;
  #review: Review | undefined;
  #files: readonly ReviewFile[] = [];
  /** By path, of `#files`. */
  #resources = new Map<string, ChangeResource>();
  /** The agent has worked since the target was made. */
  #isOutdated = false;
  #loading: Promise<void> | undefined;
  #isLoadWanted = false;

  constructor({ connection, events, session }: OpenReviewOptions) {
    this.#connection = connection;
    this.session = session;
    this.#name = sanitize(sessionTitle(session), 60);
    const title = `Review: ${this.#name}`;
    // Without a folder: VS Code would show the folder's name in place of the title. Commands of its title bar get the source
    // control, and find the session in it.
    this.#control = this.#owned.add(Object.assign(scm.createSourceControl(PROVIDER, title), { session }));
    this.#control.inputBox.visible = false;
    this.#statusItem = this.#owned.add(
      window.createStatusBarItem(`holdfast.review.${session.id}`, StatusBarAlignment.Left, 8),
    );
    this.#statusItem.name = `Holdfast: ${title}`;
    this.#groups = this.#createGroups();
    this.#owned.add(connection.onDidChange(() => this.#showStatus()));
    this.#owned.add(
      events.follow(session.id, session.lastSeq, ({ type, data }) => {
        if (type === 'review.ended') this.#ended.fire(undefined);
        if (type === 'turn.started') this.#markOutdated();
        const revision = typeof data === 'object' && 'revision' in data ? data['revision'] : undefined;
        if (type === 'review.commented') this.#changed.fire(undefined);
        else if (
          type === 'review.opened' ||
          (type.startsWith('review.') && revision !== this.#review?.revision)
        )
          void this.reload().catch(() => undefined);
      }),
    );
    this.#showStatus();
  }

  /** Fires when there are other changes or decisions. */
  readonly onDidChange = this.#changed.event;
  /** Fires when all that was accepted has been handed off, or another review has begun. */
  readonly onDidEnd = this.#ended.event;

  get control(): SourceControl {
    return this.#control;
  }

  get review(): Review | undefined {
    return this.#review;
  }

  get files(): readonly ReviewFile[] {
    return this.#files;
  }

  fileAt(path: string): ReviewFile | undefined {
    return this.#resources.get(path)?.file;
  }

  uriOf(file: Pick<ReviewFile, 'path' | 'id'>, side: 'base' | 'target'): Uri {
    return changeUri(this.#connection, this.session.id, file, side);
  }

  /** The changes that a group of the view lists; none for what is no group of this review. */
  resourcesIn(group: unknown): readonly ReviewFile[] {
    const found = GROUPS.find((key) => this.#groups[key] === group);
    return found === undefined ? [] : this.#files.filter((file) => groupOf(file) === found);
  }

  /** Compares with the workspace as it is now. */
  async refresh(
    base: { readonly base?: ReviewBase; readonly upload?: string },
    onProgress: (stage: string) => void,
  ): Promise<void> {
    await this.#connection.call(
      'review/open',
      { session: this.session.id, ...base },
      { onProgress: ({ stage }) => onProgress(sanitize(stage)) },
    );
    this.#isOutdated = false;
    await this.reload();
  }

  /** Gets the changes and the decisions from the supervisor. Errors: `not_found` if no review is open. */
  async reload(): Promise<void> {
    this.#isLoadWanted = true;
    this.#loading ??= this.#loadWhileWanted();
    await this.#loading;
  }

  dispose(): void {
    this.#owned.dispose();
  }

  async #loadWhileWanted(): Promise<void> {
    try {
      while (this.#isLoadWanted && !this.#owned.isDisposed) {
        this.#isLoadWanted = false;
        await this.#load();
      }
    } finally {
      this.#loading = undefined;
    }
  }

  async #load(): Promise<void> {
    const files: ReviewFile[] = [];
    const session = this.session.id;
    for (let cursor: string | undefined; ;) {
      const page = await this.#connection.call('review/files', {
        session,
        limit: REVIEW_LIMITS.maxFiles,
        ...(cursor === undefined ? {} : { cursor }),
      });
      files.push(...page.files);
      if (page.nextCursor === null) {
        this.#show(page.review, files);
        return;
      }
      cursor = page.nextCursor;
    }
  }

  #show(review: Review, files: readonly ReviewFile[]): void {
    if (this.#owned.isDisposed) return;
    // A decision of this window is read twice, for its answer and for its event: VS Code loses clicks on what it draws again.
    if (isDeepStrictEqual([review, files], [this.#review, this.#files])) {
      this.#showStatus();
      return;
    }
    this.#review = review;
    this.#files = files;
    const known = this.#resources;
    this.#resources = new Map(
      files.map((file) => {
        const resource = known.get(file.path);
        return [
          file.path,
          isDeepStrictEqual(resource?.file, file) && resource ? resource : this.#resource(file),
        ];
      }),
    );
    for (const key of GROUPS) {
      this.#groups[key].resourceStates = [...this.#resources.values()].filter(
        ({ file }) => groupOf(file) === key,
      );
    }
    this.#showStatus();
    this.#changed.fire(undefined);
  }

  #resource(file: ReviewFile): ChangeResource {
    const resource: ChangeResource = {
      review: this,
      file,
      resourceUri: this.uriOf(file, 'target'),
      contextValue: groupOf(file),
      decorations: {
        strikeThrough: file.kind === 'deleted',
        faded: file.state === 'rejected' || file.risks.includes('generated'),
        tooltip: sanitize(describeChange(file)),
      },
    };
    return Object.assign(resource, {
      command: { command: 'holdfast.openChange', title: 'Open Change', arguments: [resource] },
    });
  }

  #createGroups(): Readonly<Record<ReviewGroup, SourceControlResourceGroup>> {
    const create = (key: ReviewGroup): SourceControlResourceGroup => {
      const group = this.#owned.add(this.#control.createResourceGroup(key, REVIEW_GROUPS[key]));
      group.hideWhenEmpty = true;
      return group;
    };
    return {
      closely: create('closely'),
      toReview: create('toReview'),
      aside: create('aside'),
      accepted: create('accepted'),
      mixed: create('mixed'),
      rejected: create('rejected'),
    };
  }

  #markOutdated(): void {
    this.#isOutdated = true;
    this.#showStatus();
  }

  #showStatus(): void {
    const left = this.#files.filter(isUndecided).length;
    this.#control.count = left;
    const { kind } = this.#connection.state;
    const status =
      kind === 'noSupervisor'
        ? {
            icon: 'debug-disconnect',
            text: 'no supervisor',
            command: 'holdfast.connect',
            tooltip: 'Decisions are kept.',
          }
        : this.#review === undefined
          ? {
              icon: 'loading~spin',
              text: 'review',
              command: 'holdfast.reviewChanges',
              tooltip: 'The review is being loaded',
            }
          : this.#isOutdated
            ? {
                icon: 'refresh',
                text: `${left} to review, outdated`,
                command: 'holdfast.reviewChanges',
                tooltip: 'The agent has worked since. Compare with the current workspace.',
              }
            : {
                icon: left === 0 ? 'check' : 'eye',
                text: left === 0 ? 'all decided' : `${left} to review`,
                command: left === 0 ? 'holdfast.openAllChanges' : 'holdfast.nextChange',
                tooltip:
                  left === 0
                    ? 'Every change is accepted or rejected'
                    : `${formatCount(left, 'change')} to review: go to the next one`,
              };
    this.#statusItem.text = `$(${status.icon}) ${this.#name}: ${status.text}`;
    this.#statusItem.tooltip = status.tooltip;
    this.#statusItem.accessibilityInformation = { label: `${this.#name}: ${status.text}. ${status.tooltip}` };
    this.#statusItem.command = { command: status.command, title: status.text, arguments: [this.session.id] };
    this.#statusItem.show();
  }
}

/** An error about a review that does not exist any more. */
export function isNoReview(error: unknown): boolean {
  return HoldfastError.from(error).code === 'not_found';
}
