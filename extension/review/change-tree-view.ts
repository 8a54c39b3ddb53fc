import { setTimeout as sleep } from 'node:timers/promises';
import { EventEmitter, TreeItemCheckboxState, commands, window } from 'vscode';
import type {
  Disposable,
  Event,
  TreeCheckboxChangeEvent,
  TreeDataProvider,
  TreeItem,
  TreeView,
} from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { childrenOf, describeTally, sectionsOf } from './change-tree.ts';
import type { Branch } from './change-tree.ts';
import { MAX_STAYING, idOf, itemOf } from './change-tree-items.ts';
import type { Node } from './change-tree-items.ts';
import type { OpenReview } from './open-review.ts';
import type { OpenReviews } from './open-reviews.ts';
import { ShownEntries } from './shown-entries.ts';

const VIEW = 'holdfast.review';
/** The command of VS Code that opens the view. */
export const SHOW_TREE = `${VIEW}.focus`;
/** How long a key waits until VS Code reports what is selected. */
const SELECTION_TIMEOUT_MS = 1_000;
const SELECTION_POLL_MS = 20;
/** How long nobody has decided anything before branches are drawn again: longer than somebody takes from one checkbox to the next. */
const QUIET_MS = 800;
/** More entries than this are drawn again with all others. */
const MAX_SINGLE = 200;
const STATUS_MS = 5_000;
const { Checked, Unchecked } = TreeItemCheckboxState;

/**
 * The view *Review*: the changes of the open reviews as a tree, with a checkbox for what is accepted. It shows what the reviews
 * have, and keeps nothing of its own.
 */
export class ChangeTreeView implements TreeDataProvider<Node>, Disposable {
  readonly #reviews: Pick<OpenReviews, 'all' | 'stayingOf'>;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Node[] | undefined>());
  readonly #view: TreeView<Node>;
  /** What the entries were made of. */
  #compared = '';
  readonly #shown = new ShownEntries<Node>({
    entriesBelow: (parent) => this.#entriesBelow(parent),
    looksOf: (node) => looksOf(itemOf(node)),
    idOf,
  });
  /** To be drawn again once the person pauses; undefined stands for the whole tree. */
  readonly #waiting = new Set<Node | undefined>();
  #quiet: NodeJS.Timeout | undefined;
  #toggling: Promise<void> = Promise.resolve();

  constructor(reviews: Pick<OpenReviews, 'all' | 'stayingOf'>) {
    this.#reviews = reviews;
    this.#view = this.#owned.add(
      window.createTreeView<Node>(VIEW, {
        treeDataProvider: this,
        canSelectMany: true,
        showCollapseAll: true,
        // What a folder shows follows from the decisions about its changes.
        manageCheckboxStateManually: true,
      }),
    );
    this.#owned.add(
      this.#view.onDidChangeCheckboxState((event) => {
        this.#toggling = this.#toggling.then(() => this.#toggle(event));
      }),
    );
    this.#owned.onDispose(() => clearTimeout(this.#quiet));
  }

  get onDidChangeTreeData(): Event<Node[] | undefined> {
    return this.#changed.event;
  }

  refresh(): void {
    const { all } = this.#reviews;
    const files = all.flatMap((review) => review.files);
    this.#say(files.length === 0 ? 'The changes are being compared.' : '', describeTally(files));
    const compared = all.map(({ session, review }) =>
      [session.id, review?.id, review?.base.root, review?.target.root].join(' '),
    );
    if (compared.join('\n') === this.#compared) {
      this.#redraw(this.#shown.update());
      return;
    }
    this.#compared = compared.join('\n');
    // A click that is on its way is about the entries of before: what it decides is refused if that has changed.
    this.#shown.forget();
    this.#waiting.clear();
    clearTimeout(this.#quiet);
    this.#changed.fire(undefined);
  }

  /** The entries that a key of the view is about: the selected ones if the focused one is among them, else the focused one. */
  async selected(): Promise<readonly unknown[]> {
    const decidable = (): readonly Node[] =>
      this.#view.selection.filter((node) => 'file' in node || 'files' in node);
    const before = decidable();
    // Arrow keys move the focus and leave the selection.
    await commands.executeCommand('list.selectAndPreserveFocus');
    // VS Code reports no selection while it reloads the entries.
    const deadline = performance.now() + SELECTION_TIMEOUT_MS;
    while (this.#view.selection.length === 0 && performance.now() < deadline) await sleep(SELECTION_POLL_MS);
    const found = decidable();
    if (found.length > 0) return found.every((node) => before.includes(node)) ? before : found;
    throw new HoldfastError('invalid_params', 'No change is selected', {
      next: 'select changes or folders of the review',
    });
  }

  getChildren(parent?: Node): Node[] {
    return this.#shown.entriesBelow(parent);
  }

  getTreeItem(node: Node): TreeItem {
    this.#shown.markDrawn(node);
    return itemOf(node);
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #say(message: string, description: string): void {
    // Also the same text would be drawn again.
    if (this.#view.message !== message) this.#view.message = message;
    const shown = message === '' ? description : '';
    if (this.#view.description !== shown) this.#view.description = shown;
  }

  #entriesBelow(parent: Node | undefined): Node[] {
    if (parent === undefined) {
      const { all } = this.#reviews;
      if (all.length > 1)
        return all.map((review) => ({ kind: 'review', ...of(review), files: review.files }));
      return all.flatMap((review) => this.#partsOf(review));
    }
    const { review } = parent;
    switch (parent.kind) {
      case 'review':
        return this.#partsOf(review);
      case 'branch':
        return childrenOf(parent.branch).map((child) =>
          child.kind === 'branch'
            ? branchNode(review, child)
            : { ...of(review), ...child, kind: 'change' as const },
        );
      case 'staying':
        return this.#reviews
          .stayingOf(review.session.id)
          .slice(0, MAX_STAYING)
          .map((stays) => ({ kind: 'stayingChange', ...of(review), stays }));
      case 'change':
      case 'stayingChange':
        return [];
    }
  }

  #partsOf(review: OpenReview): Node[] {
    const sections = sectionsOf(review.files).map((branch): Node => branchNode(review, branch));
    const count = this.#reviews.stayingOf(review.session.id).length;
    return count === 0 ? sections : [...sections, { kind: 'staying', ...of(review), count }];
  }

  /** Entries with others below them wait until the person pauses, because of the clicks that `ShownEntries` is about. */
  #redraw(nodes: readonly (Node | undefined)[]): void {
    if (nodes.length === 0) return;
    const isSingle = (node: Node | undefined): node is Node =>
      node?.kind === 'change' || node?.kind === 'stayingChange';
    const single = nodes.filter(isSingle);
    if (single.length > MAX_SINGLE) this.#waiting.add(undefined);
    else if (single.length > 0) this.#changed.fire(single);
    for (const node of nodes) if (!isSingle(node)) this.#waiting.add(node);
    if (this.#waiting.size === 0) return;
    clearTimeout(this.#quiet);
    this.#quiet = setTimeout(() => {
      const waiting = [...this.#waiting].filter((node) => node !== undefined);
      const isAll = this.#waiting.has(undefined);
      this.#waiting.clear();
      this.#changed.fire(isAll ? undefined : waiting);
    }, QUIET_MS);
  }

  /** By the commands, so that they ask, refuse and explain as everywhere. Then the checkbox shows what was decided. */
  async #toggle({ items }: TreeCheckboxChangeEvent<Node>): Promise<void> {
    const nodesTo = (wanted: TreeItemCheckboxState): Node[] =>
      items.filter(([, state]) => state === wanted).map(([node]) => node);
    const [accepted, withdrawn] = [nodesTo(Checked), nodesTo(Unchecked)];
    if (accepted.length > 0) await commands.executeCommand('holdfast.acceptChange', ...accepted);
    if (withdrawn.length > 0) await commands.executeCommand('holdfast.withdrawDecision', ...withdrawn);
    if (this.#owned.isDisposed) return;
    if (items.length === 0) {
      // VS Code has drawn a mark, and does not say where.
      window.setStatusBarMessage('The changes were being drawn again: click once more', STATUS_MS);
      this.#redraw([undefined]);
      return;
    }
    this.refresh();
    // VS Code has drawn what the person wanted.
    this.#redraw(
      items
        .filter(([node, wanted]) => isChecked(itemOf(node)) !== (wanted === Checked))
        .map(([node]) => node),
    );
  }
}

function of(review: OpenReview): Pick<Node, 'review' | 'session'> {
  return { review, session: review.session };
}

function branchNode(review: OpenReview, branch: Branch): Node {
  return { kind: 'branch', ...of(review), branch, files: branch.files };
}

function isChecked({ checkboxState }: TreeItem): boolean {
  const state = typeof checkboxState === 'object' ? checkboxState.state : checkboxState;
  return state === Checked;
}

/** Equal for items that look the same. */
function looksOf({
  label,
  description,
  iconPath,
  contextValue,
  tooltip,
  resourceUri,
  ...item
}: TreeItem): string {
  const { checkboxState, accessibilityInformation } = item;
  const uri = resourceUri?.toString();
  return JSON.stringify([
    label,
    description,
    iconPath,
    contextValue,
    tooltip,
    uri,
    checkboxState,
    accessibilityInformation,
  ]);
}
