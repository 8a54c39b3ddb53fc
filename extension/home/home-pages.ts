import { ViewColumn, window } from 'vscode';
import type { Disposable, Uri, WebviewPanel } from 'vscode';
import { DisposableStore } from '../base/disposable-store.ts';
import type { CommandHandler } from '../commands/registry.ts';
import type { CommandId } from '../commands/table.ts';
import { fillPanel } from '../page/fill-panel.ts';
import { HomePage } from './home-page.ts';
import type { HomePageOptions } from './home-page.ts';

const VIEW_TYPE = 'holdfast.homePage';

export type HomePagesOptions = Omit<HomePageOptions, 'panel'> & {
  /** The folder of the extension. */
  readonly extension: Uri;
};

/** The home page of this window, one at most; VS Code restores it after a reload. */
export class HomePages implements Disposable {
  readonly #options: HomePagesOptions;
  readonly #owned = new DisposableStore();
  #panel: WebviewPanel | undefined;
  #page: HomePage | undefined;

  constructor(options: HomePagesOptions) {
    this.#options = options;
    this.#owned.add(
      window.registerWebviewPanelSerializer(VIEW_TYPE, {
        deserializeWebviewPanel: (panel) => {
          this.#fill(panel);
          return Promise.resolve();
        },
      }),
    );
  }

  get handlers() {
    return {
      'holdfast.openHome': () => {
        if (this.#panel === undefined)
          this.#fill(window.createWebviewPanel(VIEW_TYPE, 'Holdfast', ViewColumn.Active));
        else this.#panel.reveal();
      },
    } as const satisfies Partial<Record<CommandId, CommandHandler>>;
  }

  dispose(): void {
    this.#page?.dispose();
    this.#owned.dispose();
  }

  #fill(panel: WebviewPanel): void {
    // VS Code may restore a tab after a person has opened another one.
    this.#panel?.dispose();
    this.#panel = panel;
    const page = new HomePage({ ...this.#options, panel });
    this.#page = page;
    panel.onDidDispose(() => {
      page.dispose();
      if (this.#panel === panel) this.#panel = undefined;
    });
    fillPanel(panel, this.#options.extension, { bundle: 'home-page', title: 'Holdfast' });
  }
}
