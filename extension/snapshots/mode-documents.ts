import { Uri, workspace } from 'vscode';
import type { Disposable } from 'vscode';
import { formatMode } from './format.ts';

const SCHEME = 'holdfast-mode';

/** The mode of a file as a document, so that two of them can be compared beside the files whose content differs. */
export function modeUri(path: string, mode: number): Uri {
  return Uri.from({ scheme: SCHEME, path, query: String(mode) });
}

/** All that is shown stands in the address, so that it is there after a reload of the window too. */
export function registerModeDocuments(): Disposable {
  return workspace.registerTextDocumentContentProvider(SCHEME, {
    provideTextDocumentContent: ({ query }) =>
      /^\d{1,5}$/.test(query) ? `File mode ${formatMode(Number(query))}\n` : '',
  });
}
