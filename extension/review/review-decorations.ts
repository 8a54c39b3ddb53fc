import { EventEmitter, FileDecoration, ThemeColor } from 'vscode';
import type { Disposable, FileDecorationProvider, Uri } from 'vscode';
import type { ReviewFile } from '../../protocol/review.ts';
import { sanitize } from '../base/sanitize.ts';
import { REVIEW_SCHEME, shownChange } from './change-uri.ts';
import type { ShownChange } from './change-uri.ts';
import { badgeOf, describeChange, isUndecided, kindOf, needsCare } from './review-model.ts';

const COLORS: Readonly<Record<ReviewFile['kind'], string>> = {
  added: 'gitDecoration.addedResourceForeground',
  modified: 'gitDecoration.modifiedResourceForeground',
  deleted: 'gitDecoration.deletedResourceForeground',
  renamed: 'gitDecoration.renamedResourceForeground',
  mode: 'gitDecoration.modifiedResourceForeground',
  typechange: 'gitDecoration.modifiedResourceForeground',
};

/** The letter of a kind of change. `when`: for the tooltip. */
export function decorationOf(kind: ReviewFile['kind'], when: string): FileDecoration {
  const [letter, name] = kindOf(kind);
  return new FileDecoration(letter, `${name}, ${when}`, new ThemeColor(COLORS[kind]));
}

/** The letter of each change, and a mark on those that need care, in the Source Control view and in tabs. */
export class ReviewDecorations implements FileDecorationProvider, Disposable {
  readonly #changed = new EventEmitter<undefined>();
  readonly onDidChangeFileDecorations = this.#changed.event;
  readonly #fileOf: (shown: ShownChange) => ReviewFile | undefined;

  constructor(fileOf: (shown: ShownChange) => ReviewFile | undefined) {
    this.#fileOf = fileOf;
  }

  refresh(): void {
    this.#changed.fire(undefined);
  }

  provideFileDecoration(uri: Uri): FileDecoration | undefined {
    if (uri.scheme !== REVIEW_SCHEME) return undefined;
    const shown = shownChange(uri);
    const file = shown === undefined ? undefined : this.#fileOf(shown);
    if (file === undefined || file.id !== shown?.id) return undefined;
    const color = isUndecided(file) && needsCare(file) ? 'list.warningForeground' : COLORS[file.kind];
    return new FileDecoration(badgeOf(file), sanitize(describeChange(file)), new ThemeColor(color));
  }

  dispose(): void {
    this.#changed.dispose();
  }
}
