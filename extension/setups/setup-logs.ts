import { EventEmitter, Uri, window, workspace } from 'vscode';
import type { Disposable, Event, TextDocumentContentProvider } from 'vscode';
import { DisposableStore } from '../base/disposable-store.ts';

/** `holdfast-setup:/<host>/<profile> setup.log`: what a setup printed. */
const SCHEME = 'holdfast-setup';
const REDRAW_MS = 150;

/** The output of setups as read-only documents. A document keeps its text until it is closed. */
export class SetupLogs implements TextDocumentContentProvider, Disposable {
  readonly #owned = new DisposableStore();
  readonly #changed = this.#owned.add(new EventEmitter<Uri>());
  readonly #texts = new Map<string, string>();
  readonly #redraws = new Map<string, NodeJS.Timeout>();

  constructor() {
    this.#owned.add(workspace.registerTextDocumentContentProvider(SCHEME, this));
    this.#owned.add(
      workspace.onDidCloseTextDocument(({ uri }) => {
        if (uri.scheme === SCHEME) this.#texts.delete(uri.path);
      }),
    );
  }

  get onDidChange(): Event<Uri> {
    return this.#changed.event;
  }

  dispose(): void {
    for (const timer of this.#redraws.values()) clearTimeout(timer);
    this.#owned.dispose();
  }

  provideTextDocumentContent(uri: Uri): string {
    return this.#texts.get(uri.path) ?? 'Run *Agent: Show Setup Log* again to read it.\n';
  }

  /** Opens the log with this text. Returns what replaces it, at most every 150 ms. */
  async show(host: string, profile: string, text: string): Promise<(text: string) => void> {
    const uri = Uri.from({ scheme: SCHEME, path: `/${host}/${profile} setup.log` });
    this.#texts.set(uri.path, text);
    this.#changed.fire(uri);
    await window.showTextDocument(await workspace.openTextDocument(uri), { preview: false });
    return (next) => {
      this.#texts.set(uri.path, next);
      if (this.#redraws.has(uri.path)) return;
      const redraw = setTimeout(() => {
        this.#redraws.delete(uri.path);
        this.#changed.fire(uri);
      }, REDRAW_MS);
      this.#redraws.set(uri.path, redraw);
    };
  }
}
