import { TabInputCustom, TabInputNotebook, TabInputText, window } from 'vscode';
import type { Disposable, Memento, Tab } from 'vscode';
import { z } from 'zod';
import { DisposableStore } from '../base/disposable-store.ts';
import { locate } from '../files/location.ts';

const MAX_FILES = 50;
const STATE_KEY = 'holdfast.recentFiles';
/** A function, because zod is in the second bundle, which must not load at activation. */
const filesSchema = () => z.array(z.object({ session: z.string(), path: z.string() }));

export interface RecentFile {
  readonly session: string;
  readonly path: string;
}

/**
 * The session files that this window has shown, the latest first. VS Code's Quick Open lists recent files in the same
 * way.
 */
export class RecentFiles implements Disposable {
  readonly #state: Memento;
  readonly #owned = new DisposableStore();
  /** Loaded at first use. */
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

  /** The recent files of one session, without the active one. */
  of(session: string): RecentFile[] {
    const shown = fileOf(window.tabGroups.activeTabGroup.activeTab);
    return this.#files.filter((one) => one.session === session && one.path !== shown?.path);
  }

  get #files(): readonly RecentFile[] {
    if (this.#loaded === undefined) {
      const stored = filesSchema().safeParse(this.#state.get(STATE_KEY));
      this.#loaded = stored.success ? stored.data : [];
    }
    return this.#loaded;
  }

  #opened(tab: Tab | undefined): void {
    const file = fileOf(tab);
    // Returns before it reads the state, which would load zod. Most windows show no file of a session.
    if (file === undefined) return;
    const [latest] = this.#files;
    if (latest?.session === file.session && latest.path === file.path) return;
    const others = this.#files.filter(({ session, path }) => session !== file.session || path !== file.path);
    this.#loaded = [file, ...others].slice(0, MAX_FILES);
    void this.#state.update(STATE_KEY, this.#loaded);
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
