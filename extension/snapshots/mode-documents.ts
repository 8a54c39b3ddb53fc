import { Uri, workspace } from 'vscode';
import type { Disposable } from 'vscode';
import { formatMode } from './format.ts';

const SCHEME = 'holdfast-mode';

/** A document that shows a file mode, so that the diff editor can compare two modes. */
export function modeUri(path: string, mode: number): Uri {
  return Uri.from({ scheme: SCHEME, path, query: String(mode) });
}

/** The URI holds the whole content, so the documents work after a window reload too. */
export function registerModeDocuments(): Disposable {
  return workspace.registerTextDocumentContentProvider(SCHEME, {
    provideTextDocumentContent: ({ query }) =>
      /^\d{1,5}$/.test(query) ? `File mode ${formatMode(Number(query))}\n` : '',
  });
}
