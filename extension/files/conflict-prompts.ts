import { QuickPickItemKind, ThemeIcon, window } from 'vscode';
import type { QuickInputButton, QuickPickItem, Uri } from 'vscode';
import { WORKSPACE } from '../../protocol/paths.ts';
import { sanitize } from '../base/sanitize.ts';
import { baseName } from './location.ts';

/** A document with unsaved changes whose file is not the one any more that the changes began from. */
export interface Conflict {
  readonly uri: Uri;
  readonly kind: 'changed' | 'deleted';
}

/** For a deleted file *overwrite* makes it anew, and *useSessionVersion* gives the document up. */
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
    changed: 'Take Theirs',
    deleted: 'Close',
    command: 'holdfast.useSessionVersion',
    icon: 'discard',
  },
} as const satisfies Record<ConflictResolution, object>;

const REVIEW = 'Review…';
/** Without a number, so that VS Code takes a later one for the same notification and shows it in the place of the earlier one. */
const SEVERAL =
  'Several files were changed in the session while you were editing them. They are not saved yet.';

/** Undefined: they decide later. */
export async function askAboutConflict({ uri, kind }: Conflict): Promise<ConflictResolution | undefined> {
  const answers: ConflictResolution[] =
    kind === 'changed' ? ['compare', 'overwrite', 'useSessionVersion'] : ['overwrite', 'useSessionVersion'];
  const labels = answers.map((answer) => RESOLUTIONS[answer][kind]);
  const choice = await window.showWarningMessage(
    `${sanitize(baseName(uri.path))} was ${kind} in the session while you were editing it. It is not saved yet.`,
    ...labels,
  );
  return answers.find((answer) => RESOLUTIONS[answer][kind] === choice);
}

/** Whether they want to see the list. */
export async function offerReview(): Promise<boolean> {
  return (await window.showWarningMessage(SEVERAL, REVIEW)) === REVIEW;
}

interface Decided {
  readonly answer: ConflictResolution;
  readonly conflicts: readonly Conflict[];
}

type Item = QuickPickItem & { readonly decided?: Decided };

/** The list of all conflicts: a button for each answer per file, and entries that answer for all. */
export function reviewConflicts(conflicts: readonly Conflict[]): Promise<Decided | undefined> {
  const pick = window.createQuickPick<Item>();
  const answersOf = new Map<QuickInputButton, ConflictResolution>();
  const buttonOf = (answer: ConflictResolution, { kind }: Conflict): QuickInputButton => {
    const button = { iconPath: new ThemeIcon(RESOLUTIONS[answer].icon), tooltip: RESOLUTIONS[answer][kind] };
    answersOf.set(button, answer);
    return button;
  };
  pick.title = 'Files changed in the session while you were editing them';
  pick.placeholder = conflicts.length === 0 ? 'No conflicts' : 'Choose a file to compare, or decide for all';
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
            detail: 'Saves your texts in the place of what the session has',
            decided: { answer: 'overwrite' as const, conflicts },
          },
          {
            label: 'Take All of Theirs',
            detail: 'Gives up your changes and shows what the session has',
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
