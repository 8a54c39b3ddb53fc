import { OverviewRulerLane, Range, ThemeColor, window, workspace } from 'vscode';
import type { DecorationOptions, Disposable, TextEditor } from 'vscode';
import { DisposableStore } from '../base/disposable-store.ts';
import { REVIEW_SCHEME, shownChange } from './change-uri.ts';
import type { ShownChange, Side } from './change-uri.ts';
import { hunkLabels } from './hunk-labels.ts';
import type { HidingSides, HunkLabel, LabelledHunks } from './hunk-labels.ts';

const IGNORES_WHITE_SPACE = 'diffEditor.ignoreTrimWhitespace';

/**
 * Says behind the first line of each hunk in a diff editor what was decided about it. Hunks that are not decided are marked
 * too, because the diff editor may hide changes of white space; their mark says so.
 */
export class HunkMarks implements Disposable {
  readonly #hunksOf: (shown: ShownChange) => Promise<LabelledHunks | undefined>;
  readonly #owned = new DisposableStore();
  readonly #mark = this.#owned.add(
    window.createTextEditorDecorationType({
      isWholeLine: true,
      overviewRulerLane: OverviewRulerLane.Center,
    }),
  );

  constructor(hunksOf: (shown: ShownChange) => Promise<LabelledHunks | undefined>) {
    this.#hunksOf = hunksOf;
    this.#owned.add(window.onDidChangeVisibleTextEditors(() => this.refresh()));
    this.#owned.add(
      workspace.onDidChangeConfiguration((change) => {
        if (change.affectsConfiguration(IGNORES_WHITE_SPACE)) this.refresh();
      }),
    );
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
    const labels = found === undefined ? [] : hunkLabels(found, shown.side, sidesThatHide(shown));
    editor.setDecorations(this.#mark, labels.map(decorationOf));
  }
}

function sidesThatHide(shown: ShownChange): HidingSides | undefined {
  if (workspace.getConfiguration().get(IGNORES_WHITE_SPACE) !== true) return undefined;
  const linesOf = (side: Side): readonly string[] | undefined =>
    workspace.textDocuments
      .find(({ uri }) => {
        const one = shownChange(uri);
        return one?.session === shown.session && one.id === shown.id && one.side === side;
      })
      ?.getText()
      .split(/\r\n|\n|\r/);
  const [base, target] = [linesOf('base'), linesOf('target')];
  return base === undefined || target === undefined ? undefined : { base, target };
}

function decorationOf({ line, text, color }: HunkLabel): DecorationOptions {
  const after = {
    contentText: text,
    color: new ThemeColor(color),
    margin: '0 0 0 3em',
    fontStyle: 'italic',
  };
  return { range: new Range(line, 0, line, 0), renderOptions: { after } };
}
