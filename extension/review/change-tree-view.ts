import { setTimeout as sleep } from 'node:timers/promises';
import {
  EventEmitter,
  ThemeColor,
  ThemeIcon,
  TreeItem,
  TreeItemCheckboxState,
  TreeItemCollapsibleState,
  commands,
  window,
} from 'vscode';
import type { Disposable, Event, TreeCheckboxChangeEvent, TreeDataProvider, TreeView } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { ReviewFile } from '../../protocol/review.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { childrenOf, describeTally, isAllAccepted, sectionsOf } from './change-tree.ts';
import type { Branch } from './change-tree.ts';
import type { OpenReview } from './open-review.ts';
import type { OpenReviews } from './open-reviews.ts';
import { describeChange, describeFlags, isUndecided, needsCare } from './review-model.ts';
import type { StayingFile } from './will-not-travel.ts';

const VIEW = 'holdfast.review';
/** The command of VS Code that opens the view. */
export const SHOW_TREE = `${VIEW}.focus`;
const WILL_NOT_TRAVEL = 'Will Not Travel';
const MAX_STAYING = 500;
const LABEL_CHARACTERS = 120;
/** How long a key waits until VS Code reports what is selected. */
const SELECTION_TIMEOUT_MS = 1_000;
const SELECTION_POLL_MS = 20;
const { Checked, Unchecked } = TreeItemCheckboxState;
const { Collapsed, Expanded, None } = TreeItemCollapsibleState;

/** `session`: by it a command finds the host. */
interface OfReview {
  readonly review: OpenReview;
  readonly session: Session;
}
/** Several changes: commands decide about all of them. */
export interface BranchNode extends OfReview {
  readonly kind: 'branch';
  readonly branch: Branch;
  readonly files: readonly ReviewFile[];
}
export interface ChangeNode extends OfReview {
  readonly kind: 'change';
  readonly id: string;
  readonly label: string;
  readonly file: ReviewFile;
}
/** Where the window shows more than one review. */
interface ReviewNode extends OfReview {
  readonly kind: 'review';
  readonly files: readonly ReviewFile[];
}
interface StayingNode extends OfReview {
  readonly kind: 'staying';
}
interface StayingChangeNode extends OfReview {
  readonly kind: 'stayingChange';
  readonly stays: StayingFile;
}
type Node = ReviewNode | BranchNode | ChangeNode | StayingNode | StayingChangeNode;

/**
 * The view *Review*: the changes of the open reviews as a tree, with a checkbox for what is accepted. It shows what the reviews
 * have, and keeps nothing of its own.
 */
export class ChangeTreeView implements TreeDataProvider<Node>, Disposable {
  readonly #reviews: Pick<OpenReviews, 'all' | 'stayingOf'>;
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<undefined>());
  readonly #view: TreeView<Node>;

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
    this.#owned.add(this.#view.onDidChangeCheckboxState((event) => void this.#toggle(event)));
  }

  get onDidChangeTreeData(): Event<undefined> {
    return this.#changed.event;
  }

  refresh(): void {
    const files = this.#reviews.all.flatMap((review) => review.files);
    this.#view.message = files.length === 0 ? 'The changes are being compared.' : '';
    this.#view.description = files.length === 0 ? '' : describeTally(files);
    this.#changed.fire(undefined);
  }

  /** The entries that a key of the view is about: the selected ones where there are several, else the focused one. */
  async selected(): Promise<readonly unknown[]> {
    const decidable = (): readonly Node[] =>
      this.#view.selection.filter((node) => 'file' in node || 'files' in node);
    if (decidable().length > 1) return decidable();
    // Arrow keys move the focus and leave the selection.
    await commands.executeCommand('list.selectAndPreserveFocus');
    // VS Code reports no selection while it reloads the entries.
    const deadline = performance.now() + SELECTION_TIMEOUT_MS;
    while (this.#view.selection.length === 0 && performance.now() < deadline) await sleep(SELECTION_POLL_MS);
    const found = decidable();
    if (found.length > 0) return found;
    throw new HoldfastError('invalid_params', 'No change is selected', {
      next: 'select changes or folders of the review',
    });
  }

  getChildren(parent?: Node): Node[] {
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

  getTreeItem(node: Node): TreeItem {
    switch (node.kind) {
      case 'review':
        return reviewItem(node);
      case 'branch':
        return branchItem(node);
      case 'change':
        return changeItem(node);
      case 'staying':
        return stayingItem(node, this.#reviews.stayingOf(node.session.id).length);
      case 'stayingChange':
        return stayingChangeItem(node);
    }
  }

  dispose(): void {
    this.#owned.dispose();
  }

  #partsOf(review: OpenReview): Node[] {
    const sections = sectionsOf(review.files).map((branch): Node => branchNode(review, branch));
    const isAny = this.#reviews.stayingOf(review.session.id).length > 0;
    return isAny ? [...sections, { kind: 'staying', ...of(review) }] : sections;
  }

  /** By the commands, so that they ask, refuse and explain as everywhere. Then the checkbox shows what was decided. */
  async #toggle({ items }: TreeCheckboxChangeEvent<Node>): Promise<void> {
    const nodesTo = (wanted: TreeItemCheckboxState): Node[] =>
      items.filter(([, state]) => state === wanted).map(([node]) => node);
    try {
      const [accepted, withdrawn] = [nodesTo(Checked), nodesTo(Unchecked)];
      if (accepted.length > 0) await commands.executeCommand('holdfast.acceptChange', ...accepted);
      if (withdrawn.length > 0) await commands.executeCommand('holdfast.withdrawDecision', ...withdrawn);
    } finally {
      this.refresh();
    }
  }
}

function of(review: OpenReview): OfReview {
  return { review, session: review.session };
}

function branchNode(review: OpenReview, branch: Branch): BranchNode {
  return { kind: 'branch', ...of(review), branch, files: branch.files };
}

function idOf({ session }: OfReview, ...parts: string[]): string {
  return [session.id, ...parts].join(' ');
}

function checkbox(isChecked: boolean, name: string): NonNullable<TreeItem['checkboxState']> {
  const tooltip = isChecked ? 'Accepted. Uncheck to withdraw that.' : 'Check to accept.';
  return {
    state: isChecked ? Checked : Unchecked,
    tooltip,
    accessibilityInformation: { label: `${isChecked ? 'Accepted' : 'Not accepted'}: ${name}` },
  };
}

function reviewItem(node: ReviewNode): TreeItem {
  const name = sanitize(sessionTitle(node.session), LABEL_CHARACTERS);
  const item = new TreeItem(name, Expanded);
  item.id = idOf(node);
  item.description = describeTally(node.review.files);
  item.iconPath = new ThemeIcon('git-compare');
  item.contextValue = 'review';
  item.accessibilityInformation = { label: `Review of ${name}, ${item.description}` };
  return item;
}

function branchItem(node: BranchNode): TreeItem {
  const { branch, files } = node;
  const name = sanitize(branch.label, LABEL_CHARACTERS);
  const item = new TreeItem(name, branch.isOpen ? Expanded : Collapsed);
  item.id = idOf(node, branch.id);
  item.description = describeTally(files);
  // Fixed: an icon by the name would be the agent's choice.
  if (branch.what === 'folder') item.iconPath = new ThemeIcon('folder');
  item.contextValue = 'changes';
  item.tooltip = `${sanitize(branch.label)}: ${item.description}`;
  item.checkboxState = checkbox(isAllAccepted(files), name);
  item.accessibilityInformation = { label: `${name}, ${item.description}` };
  return item;
}

function changeItem(node: ChangeNode): TreeItem {
  const { review, file, label } = node;
  const name = sanitize(label === '' ? 'workspace' : label, LABEL_CHARACTERS);
  const item = new TreeItem(name, None);
  item.id = idOf(node, node.id);
  // For the letter of the change, from the same source as in the list of the source control.
  item.resourceUri = review.uriOf(file, 'target');
  item.description = describeFlags(file);
  item.iconPath = iconOf(file);
  item.contextValue = `change ${file.state}`;
  const what = describeChange(file);
  item.tooltip = sanitize(`${file.path}: ${what}`, 1_000);
  item.checkboxState = checkbox(file.state === 'accepted', name);
  item.accessibilityInformation = { label: `${name}, ${sanitize(what)}` };
  item.command = { command: 'holdfast.openChange', title: 'Open Change', arguments: [node] };
  return item;
}

function iconOf(file: ReviewFile): ThemeIcon {
  if (file.state === 'rejected') return new ThemeIcon('circle-slash');
  if (isUndecided(file) && needsCare(file))
    return new ThemeIcon('warning', new ThemeColor('list.warningForeground'));
  // By the icons of the person's theme.
  return ThemeIcon.File;
}

function stayingItem(node: StayingNode, count: number): TreeItem {
  const item = new TreeItem(WILL_NOT_TRAVEL, Collapsed);
  item.id = idOf(node, 'staying');
  const isAll = count <= MAX_STAYING;
  item.description = isAll ? String(count) : `the first ${MAX_STAYING} of ${count}`;
  item.tooltip = 'A handoff leaves these behind, or asks for them separately, also if you accept them.';
  item.accessibilityInformation = { label: `${WILL_NOT_TRAVEL}, ${formatCount(count, 'change')}` };
  return item;
}

function stayingChangeItem(node: StayingChangeNode): TreeItem {
  const { review, session, stays } = node;
  const { file, why } = stays;
  const name = sanitize(file.path.split('/').slice(2).join('/'), LABEL_CHARACTERS);
  const item = new TreeItem(name, None);
  item.id = idOf(node, 'staying', file.path);
  item.description = sanitize(why);
  item.iconPath = new ThemeIcon('circle-slash');
  item.tooltip = sanitize(`${file.path} stays behind at a handoff: ${why}`, 1_000);
  item.accessibilityInformation = { label: `${name} stays behind: ${sanitize(why)}` };
  item.command = {
    command: 'holdfast.openChange',
    title: 'Open Change',
    arguments: [{ review, session, file }],
  };
  return item;
}
