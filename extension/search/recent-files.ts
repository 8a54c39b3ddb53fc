import { TabInputCustom, TabInputNotebook, TabInputText, window } from 'vscode';
import type { Disposable, Memento, Tab } from 'vscode';
import { z } from 'zod';
import { DisposableStore } from '../base/disposable-store.ts';
import { locate } from '../files/location.ts';

const MOST = 50;
const KEY = 'holdfast.recentFiles';
/** Made where it is used: the window does not wait for it. */
const filesSchema = () => z.array(z.object({ session: z.string(), path: z.string() }));

export interface RecentFile {
  readonly session: string;
  readonly path: string;
}

/** Files of sessions that were shown in this window, the latest first, as VS Code's Quick Open lists those of other folders. */
export class RecentFiles implements Disposable {
  readonly #state: Memento;
  readonly #owned = new DisposableStore();
  /** Undefined until they are needed. */
  #loaded: RecentFile[] | undefined;

  constructor(state: Memento) {
    this.#state = state;
    for (const tab of window.tabGroups.all.flatMap(({ tabs }) => tabs)) this.#opened(tab);
    const show = (): void => this.#opened(window.tabGroups.activeTabGroup.activeTab);
    show();
    this.#owned.add(window.tabGroups.onDidChangeTabs(show));
    this.#owned.add(window.tabGroups.onDidChangeTabGroups(show));
  }

  dispose(): void {
    this.#owned.dispose();
  }

  /** Those of one session, without the file that is being shown. */
  of(session: string): RecentFile[] {
    const shown = fileOf(window.tabGroups.activeTabGroup.activeTab);
    return this.#files.filter((one) => one.session === session && one.path !== shown?.path);
  }

  get #files(): readonly RecentFile[] {
    if (this.#loaded === undefined) {
      const kept = filesSchema().safeParse(this.#state.get(KEY));
      this.#loaded = kept.success ? kept.data : [];
    }
    return this.#loaded;
  }

  #opened(tab: Tab | undefined): void {
    const file = fileOf(tab);
    // Before what is kept is read, which loads its schema: most windows show no file of a session.
    if (file === undefined) return;
    const [latest] = this.#files;
    if (latest?.session === file.session && latest.path === file.path) return;
    const others = this.#files.filter(({ session, path }) => session !== file.session || path !== file.path);
    this.#loaded = [file, ...others].slice(0, MOST);
    void this.#state.update(KEY, this.#loaded);
  }
}

function fileOf(tab: Tab | undefined): RecentFile | undefined {
  const input = tab?.input;
  if (!(
    input instanceof TabInputText ||
    input instanceof TabInputCustom ||
    input instanceof TabInputNotebook
  )) {
    return undefined;
  }
  if (input.uri.scheme !== 'holdfast') return undefined;
  const location = locate(input.uri);
  return location.kind === 'workspace' ? { session: location.session, path: location.path } : undefined;
}
