import { QuickPickItemKind, ThemeIcon, window } from 'vscode';
import type { QuickInputButton, QuickPickItem, Uri } from 'vscode';
import { WORKSPACE } from '../../protocol/paths.ts';
import { sanitize } from '../base/sanitize.ts';
import { baseName } from './location.ts';

/** A document with unsaved changes whose file the session has changed or deleted since. */
export interface Conflict {
  readonly uri: Uri;
  readonly kind: 'changed' | 'deleted';
}

/** For a deleted file `overwrite` creates it again, and `useSessionVersion` closes the document. */
export type ConflictResolution = 'compare' | 'overwrite' | 'useSessionVersion';

export const RESOLUTIONS = {
  compare: { changed: 'Compare', deleted: 'Show', command: 'holdfast.compareConflict', icon: 'diff' },
  overwrite: {
    changed: 'Overwrite',
    deleted: 'Recreate',
    command: 'holdfast.overwriteConflict',
    icon: 'save',
  },
  useSessionVersion: {
    changed: "Use Session's Version",
    deleted: 'Close',
    command: 'holdfast.useSessionVersion',
    icon: 'discard',
  },
} as const satisfies Record<ConflictResolution, object>;

const REVIEW = 'Review…';
/** Has no count, so that VS Code replaces an earlier notification with the same text. */
const SEVERAL =
  'The session changed several files while you were editing them. Your changes are not saved yet.';

/** Undefined where the person decides later. */
export async function askAboutConflict({ uri, kind }: Conflict): Promise<ConflictResolution | undefined> {
  const answers: ConflictResolution[] =
    kind === 'changed' ? ['compare', 'overwrite', 'useSessionVersion'] : ['overwrite', 'useSessionVersion'];
  const labels = answers.map((answer) => RESOLUTIONS[answer][kind]);
  const choice = await window.showWarningMessage(
    `The session ${kind} ${sanitize(baseName(uri.path))} while you were editing it. Your changes are not saved yet.`,
    ...labels,
  );
  return answers.find((answer) => RESOLUTIONS[answer][kind] === choice);
}

/** Whether the person wants to review the list. */
export async function offerReview(): Promise<boolean> {
  return (await window.showWarningMessage(SEVERAL, REVIEW)) === REVIEW;
}

interface Decided {
  readonly answer: ConflictResolution;
  readonly conflicts: readonly Conflict[];
}

type Item = QuickPickItem & { readonly decided?: Decided };

/** The list of all conflicts: a button for each resolution per file, and entries that resolve all. */
export function reviewConflicts(conflicts: readonly Conflict[]): Promise<Decided | undefined> {
  const pick = window.createQuickPick<Item>();
  const answersOf = new Map<QuickInputButton, ConflictResolution>();
  const buttonOf = (answer: ConflictResolution, { kind }: Conflict): QuickInputButton => {
    const button = { iconPath: new ThemeIcon(RESOLUTIONS[answer].icon), tooltip: RESOLUTIONS[answer][kind] };
    answersOf.set(button, answer);
    return button;
  };
  pick.title = 'Files that the session changed while you were editing them';
  pick.placeholder = conflicts.length === 0 ? 'No conflicts' : 'Choose a file to compare, or resolve all';
  pick.matchOnDescription = true;
  pick.items = [
    ...conflicts.map((conflict) => ({
      label: sanitize(baseName(conflict.uri.path)),
      description: sanitize(folderOf(conflict.uri)),
      ...(conflict.kind === 'deleted' ? { detail: 'deleted in the session' } : {}),
      buttons: (['compare', 'overwrite', 'useSessionVersion'] as const).map((answer) =>
        buttonOf(answer, conflict),
      ),
      decided: { answer: 'compare' as const, conflicts: [conflict] },
    })),
    ...(conflicts.length < 2
      ? []
      : [
          { label: 'all', kind: QuickPickItemKind.Separator },
          {
            label: 'Overwrite All',
            detail: "Saves your versions and replaces the session's",
            decided: { answer: 'overwrite' as const, conflicts },
          },
          {
            label: "Use Session's Version for All",
            detail: "Discards your changes and loads the session's versions",
            decided: { answer: 'useSessionVersion' as const, conflicts },
          },
        ]),
  ];
  return new Promise((resolve) => {
    const end = (decided: Decided | undefined): void => {
      resolve(decided);
      pick.dispose();
    };
    pick.onDidAccept(() => end(pick.selectedItems[0]?.decided));
    pick.onDidTriggerItemButton(({ item, button }) => {
      const answer = answersOf.get(button);
      end(answer === undefined || item.decided === undefined ? undefined : { ...item.decided, answer });
    });
    pick.onDidHide(() => end(undefined));
    pick.show();
  });
}

function folderOf({ path }: Uri): string {
  return path.slice(WORKSPACE.length + 1, -baseName(path).length - 1);
}
