import { WORKSPACE } from '../../protocol/paths.ts';
import type { ReviewFile } from '../../protocol/review.ts';
import { formatCount } from '../base/format.ts';
import { placeOf } from './review-model.ts';

/** The parts of the tree, in the order of the risk. A change stays in its part whatever is decided about it. */
export const SECTIONS = ['Look Closely', 'Changes', 'Generated and Test Files'] as const;

/** How many entries one level shows; the others are behind an entry of their own. */
export const MAX_ENTRIES = 1000;
/** A larger section begins with closed folders: VS Code reads all that is open. */
const MAX_OPEN = 1000;
/** An agent can nest folders as deep as it likes. */
const MAX_OPEN_DEPTH = 8;

/** A section, a folder of it, or what one level has no room for: changes in the order of their paths. */
export interface Branch {
  readonly kind: 'branch';
  /** Unique in its review, because no name has a slash; the same as long as its place is. */
  readonly id: string;
  /** As the agent named it. */
  readonly label: string;
  readonly what: 'section' | 'folder' | 'rest';
  readonly isOpen: boolean;
  /** All changes below it, at least one. */
  readonly files: readonly ReviewFile[];
  /** What the paths of its changes have in common and its label, or that of a branch above it, shows; ends with a slash. */
  readonly prefix: string;
  readonly depth: number;
}

export interface Leaf {
  readonly kind: 'leaf';
  readonly id: string;
  readonly label: string;
  readonly file: ReviewFile;
}

/** The sections that have changes. Read from top to bottom, they are in the order in which a person goes through a review. */
export function sectionsOf(files: readonly ReviewFile[]): Branch[] {
  const parts: ReviewFile[][] = SECTIONS.map(() => []);
  for (const file of files) parts[placeOf(file)]?.push(file);
  return parts.flatMap((own, place): Branch[] => {
    const label = SECTIONS[place];
    if (label === undefined || own.length === 0) return [];
    own.sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : 0));
    return [
      {
        kind: 'branch',
        id: String(place),
        label,
        what: 'section',
        // What people read last.
        isOpen: place !== 2,
        files: own,
        prefix: `${WORKSPACE}/`,
        depth: 0,
      },
    ];
  });
}

/** The folders and changes right below a branch, in the order of their paths. Folders with one folder only are one entry. */
export function childrenOf(branch: Branch): (Branch | Leaf)[] {
  const { files, prefix } = branch;
  const children: (Branch | Leaf)[] = [];
  for (let at = 0; at < files.length;) {
    const file = files[at];
    if (file === undefined) break;
    if (children.length === MAX_ENTRIES) {
      children.push(restOf(branch, files.slice(at)));
      break;
    }
    const slash = file.path.indexOf('/', prefix.length);
    if (slash === -1) {
      const label = file.path.slice(prefix.length);
      children.push({ kind: 'leaf', id: `${branch.id}//${label}`, label, file });
      at += 1;
      continue;
    }
    const folder = file.path.slice(0, slash + 1);
    let end = at + 1;
    while (files[end]?.path.startsWith(folder) === true) end += 1;
    children.push(folderOf(branch, file.path, files.slice(at, end)));
    at = end;
  }
  return children;
}

function folderOf(parent: Branch, first: string, files: readonly ReviewFile[]): Branch {
  const last = files.at(-1)?.path ?? first;
  // They are sorted: what the first and the last have in common, all have.
  let common = 0;
  while (common < first.length && first[common] === last[common]) common += 1;
  const prefix = first.slice(0, first.lastIndexOf('/', common - 1) + 1);
  const label = prefix.slice(parent.prefix.length, -1);
  const depth = parent.depth + 1;
  return {
    kind: 'branch',
    id: `${parent.id}/${label}`,
    label,
    what: 'folder',
    isOpen: files.length <= MAX_OPEN && depth <= MAX_OPEN_DEPTH,
    files,
    prefix,
    depth,
  };
}

function restOf(parent: Branch, files: readonly ReviewFile[]): Branch {
  return {
    ...parent,
    id: `${parent.id}///`,
    label: `and ${formatCount(files.length, 'more change')}`,
    what: 'rest',
    isOpen: false,
    files,
  };
}

/** `3 of 12 accepted, 2 rejected` */
export function describeTally(files: readonly ReviewFile[]): string {
  const accepted = files.filter(({ state }) => state === 'accepted').length;
  const rejected = files.filter(({ state }) => state === 'rejected').length;
  const told = `${accepted} of ${files.length} accepted`;
  return rejected === 0 ? told : `${told}, ${rejected} rejected`;
}

/** Whether the checkbox is checked: nothing below it is left, and nothing is rejected. */
export function isAllAccepted(files: readonly ReviewFile[]): boolean {
  return files.every(({ state }) => state === 'accepted');
}
