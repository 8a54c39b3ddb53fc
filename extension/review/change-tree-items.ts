import { ThemeColor, ThemeIcon, TreeItem, TreeItemCheckboxState, TreeItemCollapsibleState } from 'vscode';
import type { Session } from '../../protocol/entities.ts';
import type { ReviewFile } from '../../protocol/review.ts';
import { formatCount } from '../base/format.ts';
import { sanitize } from '../base/sanitize.ts';
import { sessionTitle } from '../sessions/listing.ts';
import { describeTally, isAllAccepted } from './change-tree.ts';
import type { Branch } from './change-tree.ts';
import type { OpenReview } from './open-review.ts';
import { describeChange, describeFlags, isUndecided, needsCare } from './review-model.ts';
import type { StayingFile } from './will-not-travel.ts';

const WILL_NOT_TRAVEL = 'Will Not Travel';
export const MAX_STAYING = 500;
const LABEL_CHARACTERS = 120;
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
  readonly count: number;
}
interface StayingChangeNode extends OfReview {
  readonly kind: 'stayingChange';
  readonly stays: StayingFile;
}
/** An entry of the tree. */
export type Node = ReviewNode | BranchNode | ChangeNode | StayingNode | StayingChangeNode;

/** Unique in the tree; the same as long as the place of the entry is. */
export function idOf(node: Node): string {
  const { session, kind } = node;
  switch (kind) {
    case 'review':
      return session.id;
    case 'branch':
      return `${session.id} ${node.branch.id}`;
    case 'change':
      return `${session.id} ${node.id}`;
    case 'staying':
      return `${session.id} staying`;
    case 'stayingChange':
      return `${session.id} staying ${node.stays.file.path}`;
  }
}

export function itemOf(node: Node): TreeItem {
  const item = describe(node);
  item.id = idOf(node);
  return item;
}

function describe(node: Node): TreeItem {
  switch (node.kind) {
    case 'review':
      return reviewItem(node);
    case 'branch':
      return branchItem(node);
    case 'change':
      return changeItem(node);
    case 'staying':
      return stayingItem(node);
    case 'stayingChange':
      return stayingChangeItem(node);
  }
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
  item.description = describeTally(node.files);
  item.iconPath = new ThemeIcon('git-compare');
  item.contextValue = 'review';
  item.accessibilityInformation = { label: `Review of ${name}, ${item.description}` };
  return item;
}

function branchItem(node: BranchNode): TreeItem {
  const { branch, files } = node;
  const name = sanitize(branch.label, LABEL_CHARACTERS);
  const item = new TreeItem(name, branch.isOpen ? Expanded : Collapsed);
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

function stayingItem({ count }: StayingNode): TreeItem {
  const item = new TreeItem(WILL_NOT_TRAVEL, Collapsed);
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
