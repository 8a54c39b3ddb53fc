import { OverviewRulerLane, Range, ThemeColor, window } from 'vscode';
import type { DecorationOptions, Disposable, TextEditor } from 'vscode';
import type { Hunk, ReviewState } from '../../protocol/review.ts';
import { DisposableStore } from '../base/disposable-store.ts';
import { REVIEW_SCHEME, shownChange } from './change-uri.ts';
import type { ShownChange, Side } from './change-uri.ts';
import { lineOf } from './review-model.ts';

interface ShownHunks {
  /** Of the whole change. */
  readonly state: ReviewState;
  readonly hunks: readonly Hunk[];
}

const TEXTS: Readonly<Record<ReviewState, string>> = {
  'to-review': 'to review',
  accepted: '✓ accepted',
  rejected: '✗ rejected',
  partial: '◐ some lines decided',
  mixed: '◐ some lines accepted, some rejected',
};
const COLORS: Readonly<Record<ReviewState, string>> = {
  'to-review': 'descriptionForeground',
  accepted: 'gitDecoration.addedResourceForeground',
  rejected: 'gitDecoration.deletedResourceForeground',
  partial: 'gitDecoration.modifiedResourceForeground',
  mixed: 'gitDecoration.modifiedResourceForeground',
};

/**
 * Says behind the first line of each hunk in a diff editor what was decided about it. Hunks that are not decided are marked
 * too, because the diff editor may hide changes of white space.
 */
export class HunkMarks implements Disposable {
  readonly #hunksOf: (shown: ShownChange) => Promise<ShownHunks | undefined>;
  readonly #owned = new DisposableStore();
  readonly #mark = this.#owned.add(
    window.createTextEditorDecorationType({
      isWholeLine: true,
      overviewRulerLane: OverviewRulerLane.Center,
    }),
  );

  constructor(hunksOf: (shown: ShownChange) => Promise<ShownHunks | undefined>) {
    this.#hunksOf = hunksOf;
    this.#owned.add(window.onDidChangeVisibleTextEditors(() => this.refresh()));
  }

  refresh(): void {
    for (const editor of window.visibleTextEditors) {
      if (editor.document.uri.scheme === REVIEW_SCHEME) void this.#draw(editor).catch(() => undefined);
    }
  }

  dispose(): void {
    this.#owned.dispose();
  }

  async #draw(editor: TextEditor): Promise<void> {
    const shown = shownChange(editor.document.uri);
    const found = shown === undefined ? undefined : await this.#hunksOf(shown);
    if (this.#owned.isDisposed || shown === undefined) return;
    editor.setDecorations(this.#mark, found === undefined ? [] : marksOf(found, shown.side));
  }
}

function marksOf({ state, hunks }: ShownHunks, side: Side): DecorationOptions[] {
  if (hunks.length === 0) return side === 'target' ? mark(0, state) : [];
  return hunks.flatMap((hunk) => {
    const isRemoval = hunk.what === 'lines' && hunk.added.start === hunk.added.end;
    if (isRemoval !== (side === 'base')) return [];
    return mark(
      isRemoval ? hunk.removed.start : lineOf(hunk),
      hunk.state,
      hunk.what === 'mode' ? 'mode ' : '',
    );
  });
}

function mark(line: number, state: ReviewState, what = ''): DecorationOptions[] {
  const text = `${what}${TEXTS[state]}`;
  const color = new ThemeColor(COLORS[state]);
  const after = { contentText: text, color, margin: '0 0 0 3em', fontStyle: 'italic' };
  return [{ range: new Range(line, 0, line, 0), renderOptions: { after } }];
}
