import type { FrameLocator, Locator, Page } from 'playwright-core';
import { Workbench } from '../../editor/harness/browser.ts';
import { CodeServer } from '../../editor/harness/code-server.ts';
import type { OpenTarget } from '../../editor/harness/code-server.ts';
import { editorPaths } from '../../editor/harness/editor-paths.ts';

const THEMES = {
  dark: 'Default Dark Modern',
  light: 'Default Light Modern',
  contrast: 'Default High Contrast',
} as const;
const TOGGLE_THEME = 'Preferences: Toggle between Light/Dark Themes';
const MENU_MS = 400;
/** What a page needs to be drawn in another theme. */
const DRAWN_MS = 500;
const COMMAND_MS = 4_000;
const COMMAND_TRIES = 6;
const CLICK_MS = 3_000;
const CLICKS = 10;

/** The user of a VS Code with the packaged extension installed: keyboard, mouse, and what is on the screen. */
export class User {
  readonly server: CodeServer;
  readonly page: Page;
  readonly #workbench: Workbench;

  private constructor(server: CodeServer, workbench: Workbench) {
    this.server = server;
    this.#workbench = workbench;
    this.page = workbench.page;
  }

  static async launch(options: {
    readonly home: string;
    readonly open: OpenTarget | ((server: CodeServer) => OpenTarget);
    readonly colorScheme?: 'dark' | 'light' | 'contrast';
    readonly settings?: Readonly<Record<string, unknown>>;
    readonly env?: Readonly<Record<string, string>>;
  }): Promise<User> {
    const { codeServer, chromium, extensions, screenshots } = editorPaths();
    const colorScheme = options.colorScheme ?? 'dark';
    const server = await CodeServer.start({
      codeServer,
      extensions,
      env: { HOLDFAST_HOME: options.home, ...options.env },
      settings: {
        'workbench.colorTheme': THEMES[colorScheme],
        'workbench.preferredDarkColorTheme': THEMES.dark,
        'workbench.preferredLightColorTheme': THEMES.light,
        'window.dialogStyle': 'custom',
        ...options.settings,
      },
    });
    try {
      const workbench = await Workbench.open({
        chromium,
        server,
        shots: screenshots,
        colorScheme: colorScheme === 'light' ? 'light' : 'dark',
      });
      const person = new User(server, workbench);
      try {
        await person.open(typeof options.open === 'function' ? options.open(server) : options.open);
        return person;
      } catch (error) {
        await workbench.close();
        throw error;
      }
    } catch (error) {
      await server.stop();
      throw error;
    }
  }

  async open(open: OpenTarget): Promise<void> {
    await this.page.goto(this.server.url(open));
    await this.waitUntilLoaded();
  }

  /** Presses the browser's reload button. */
  async reload(): Promise<void> {
    await this.page.reload();
    await this.waitUntilLoaded();
  }

  async waitUntilLoaded(): Promise<void> {
    await this.page.locator('.monaco-workbench .part.statusbar').waitFor({ timeout: 60_000 });
    await this.page.locator('.activitybar [aria-label="Holdfast"]').first().waitFor({ timeout: 60_000 });
  }

  /** Runs a command from the Command Palette. Retries while the extension is starting: an open list does not grow. */
  async runCommand(title: string): Promise<void> {
    for (let tries = 1; !(await this.#finds(title)); tries += 1) {
      if (tries === COMMAND_TRIES) throw new Error(`there is no command ${title}`);
      await this.page.keyboard.press('Escape');
    }
    await this.page.keyboard.press('Enter');
  }

  /** Whether the Command Palette lists a command of this title. */
  async isCommandListed(title: string): Promise<boolean> {
    const offered = await this.#finds(title);
    await this.page.keyboard.press('Escape');
    await this.page.locator('.quick-input-widget').first().waitFor({ state: 'hidden' });
    return offered;
  }

  /** Whether Enter would run the command. */
  async #finds(title: string): Promise<boolean> {
    const timeout = COMMAND_MS;
    await this.page.keyboard.press('F1');
    try {
      await this.#input.fill(`>${title}`, { timeout });
      const first = this.page.locator('.quick-input-list .monaco-list-row.focused', { hasText: title });
      await first.first().waitFor({ timeout });
      return true;
    } catch {
      return false;
    }
  }

  /** Picks an entry of the open quick pick: the first that fits, or the one after `skipped` others. */
  async pickItem(text: string | RegExp, skipped = 0): Promise<void> {
    await this.#row(text).nth(skipped).click();
  }

  /** Enters text into the open input box, once the list before it has closed. */
  async enterText(text: string): Promise<void> {
    await this.page.locator('.quick-input-widget .quick-input-list').waitFor({ state: 'hidden' });
    await this.#input.waitFor();
    await this.#input.fill(text);
    await this.page.keyboard.press('Enter');
  }

  /** Writes a path into VS Code's own dialog for files, and confirms it. The dialog writes there too, once it has read a folder. */
  async chooseFile(path: string): Promise<void> {
    const confirm = this.page.locator('.quick-input-widget .monaco-button').first();
    await confirm.waitFor();
    await this.page.locator('.quick-input-list .monaco-list-row').first().waitFor();
    for (let tries = 1; ; tries += 1) {
      await this.page.waitForTimeout(DRAWN_MS);
      if ((await this.#input.inputValue()) === path) break;
      if (tries === CLICKS) throw new Error(`the dialog does not take ${path}`);
      await this.#input.fill(path);
    }
    await this.#input.press('Enter');
    await confirm.waitFor({ state: 'hidden' });
  }

  /** The open input box or quick pick with this title. */
  quickInput(title: string): Locator {
    return this.page.locator('.quick-input-widget', { hasText: title });
  }

  quickPick(text: string | RegExp): Locator {
    return this.#row(text);
  }

  /** Opens the Sessions view. The title is that of the container while another view is shown below. */
  async openSessionsView(): Promise<void> {
    const icon = this.page.locator('.activitybar .action-item', {
      has: this.page.locator('[aria-label="Holdfast"]'),
    });
    const classes = (await icon.first().getAttribute('class')) ?? '';
    if (!classes.includes('checked')) await icon.first().click();
    await this.page.locator('.sidebar .composite.title', { hasText: /Sessions|Holdfast/ }).waitFor();
  }

  sessionRow(text: string | RegExp): Locator {
    return this.page.locator('.sidebar .monaco-list-row', { hasText: text });
  }

  /** Presses a key on an entry of a list: clicks the entry until it has the focus, because it may move under the pointer. */
  async pressKeyOn(entry: Locator, key: string): Promise<void> {
    const meant = entry.and(this.page.locator('.monaco-list:focus .monaco-list-row.focused.selected'));
    for (let tries = 1; ; tries += 1) {
      await entry.click();
      try {
        await meant.waitFor({ timeout: CLICK_MS });
        break;
      } catch (error) {
        if (tries === CLICKS) throw error;
      }
    }
    await this.page.keyboard.press(key);
  }

  /** Lists the context menu of an entry from top to bottom, and closes it. */
  async listMenu(entry: Locator): Promise<string[]> {
    await entry.click({ button: 'right' });
    const items = this.page.locator('.monaco-menu .action-item:not(.disabled) .action-label:not(.separator)');
    await items.first().waitFor();
    const texts = await items.allTextContents();
    await this.page.keyboard.press('Escape');
    await items.first().waitFor({ state: 'detached' });
    return texts;
  }

  /** Chooses an item of the context menu of an entry. */
  async chooseFromMenu(entry: Locator, item: string): Promise<void> {
    await entry.click({ button: 'right' });
    const label = this.page.locator('.monaco-menu .action-label').getByText(item, { exact: true });
    await label.hover();
    for (let tries = 1; ; tries += 1) {
      // The workbench ignores a click right after the one that opened the menu.
      await this.page.waitForTimeout(MENU_MS);
      await label.click();
      try {
        await label.waitFor({ state: 'detached', timeout: CLICK_MS });
        return;
      } catch (error) {
        if (tries === CLICKS) throw error;
      }
    }
  }

  /** Lists the inline actions that an entry shows while the pointer is on it. */
  async listInlineActions(entry: Locator): Promise<string[]> {
    await entry.hover();
    const actions = entry.locator('.actions .action-label');
    await actions.first().waitFor();
    const labels = (await actions.all()).map((one) => one.getAttribute('aria-label'));
    return (await Promise.all(labels)).map((label) => label ?? '');
  }

  /** The document of the open page of the extension, which VS Code puts into two frames. */
  get webview(): FrameLocator {
    return this.page.frameLocator('iframe.webview.ready').frameLocator('iframe');
  }

  dialog(text: string | RegExp): Locator {
    return this.page.locator('.monaco-dialog-box', { hasText: text });
  }

  /** Presses a button of a dialog and waits until the dialog has closed. */
  async pressDialogButton(dialog: string | RegExp, button: string): Promise<void> {
    await this.dialog(dialog).waitFor();
    await this.dialog(dialog).locator('.monaco-button', { hasText: button }).click();
    await this.dialog(dialog).waitFor({ state: 'detached' });
  }

  toast(text: string | RegExp): Locator {
    return this.page.locator('.notification-toast', { hasText: text });
  }

  /** Presses a button of a notification. */
  async pressToastButton(toast: string | RegExp, button: string): Promise<void> {
    await this.toast(toast).first().waitFor();
    await this.toast(toast).first().locator('.monaco-button', { hasText: button }).first().click();
  }

  /** An entry of the Explorer. */
  explorerRow(name: string): Locator {
    return this.page.locator('.explorer-folders-view .monaco-list-row', { hasText: name });
  }

  /** Expands a folder of the Explorer if it is collapsed. */
  async expandFolder(name: string): Promise<void> {
    const folder = this.explorerRow(name).first();
    await folder.waitFor();
    if ((await folder.getAttribute('aria-expanded')) === 'false') await folder.click();
  }

  editorLine(text: string | RegExp): Locator {
    return this.page.locator('.editor-instance .view-line', { hasText: text });
  }

  /** Types at the start of the first line of the open text. */
  async typeAtTop(line: string | RegExp, text: string): Promise<void> {
    await this.editorLine(line).first().click();
    await this.page.locator('.editor-instance .monaco-editor.focused').first().waitFor();
    await this.page.keyboard.press('Control+Home');
    await this.page.keyboard.type(text);
  }

  /** Saves and waits until the tab is clean. */
  async save(name: string): Promise<void> {
    await this.tab(name, 'dirty').first().waitFor();
    await this.page.keyboard.press('Control+S');
    await this.tab(name).first().waitFor();
  }

  tab(name: string, state: 'dirty' | 'saved' = 'saved'): Locator {
    return this.page.locator(state === 'dirty' ? '.tab.dirty' : '.tab:not(.dirty)', { hasText: name });
  }

  /** A row of the visible terminal. */
  terminalRow(text: string | RegExp): Locator {
    return this.page.locator('.terminal.xterm .xterm-rows > div', { hasText: text });
  }

  async typeInTerminal(text: string): Promise<void> {
    await this.page.locator('.terminal.xterm').first().click();
    await this.page.keyboard.type(text);
    await this.page.keyboard.press('Enter');
  }

  async waitForStatus(text: string | RegExp): Promise<void> {
    await this.page.locator('.statusbar-item', { hasText: text }).first().waitFor({ timeout: 30_000 });
  }

  async clearToasts(): Promise<void> {
    await this.runCommand('Notifications: Clear All Notifications');
  }

  /** `height`: of the top part that the picture shows, pixels; all of it if it is not given. */
  async screenshot(name: string, height?: number): Promise<void> {
    await this.#workbench.screenshot(name, height);
  }

  /** `NAME-dark` and `NAME-light`, in a window that is dark. `show` brings back what the change of the theme closes. */
  async screenshotInBothThemes(
    name: string,
    height: number,
    show: () => Promise<void> = async () => undefined,
  ): Promise<void> {
    await show();
    await this.screenshot(`${name}-dark`, height);
    await this.#toggleTheme('vs');
    await show();
    await this.screenshot(`${name}-light`, height);
    await this.#toggleTheme('vs-dark');
  }

  /** `kind`: the class of the workbench afterwards. */
  async #toggleTheme(kind: 'vs' | 'vs-dark'): Promise<void> {
    await this.page.keyboard.press('Escape');
    await this.runCommand(TOGGLE_THEME);
    await this.page.locator(`.monaco-workbench.${kind}`).waitFor();
    await this.page.waitForTimeout(DRAWN_MS);
  }

  /** Runs a step. If it fails, takes a screenshot and adds the notifications of VS Code to the error. */
  async screenshotOnFailure(name: string, story: () => Promise<void>): Promise<void> {
    try {
      await story();
    } catch (error) {
      await this.screenshot(`failed-${name}`).catch(() => undefined);
      const said = await this.#notifications().catch(() => ['(cannot be read)']);
      // The open list would hide the notifications of the tests that follow in this window.
      await this.clearToasts().catch(() => undefined);
      const what = error instanceof Error ? error.message : String(error);
      throw new Error(`${what}\nnotifications:\n${said.join('\n')}`, { cause: error });
    }
  }

  /** All notifications, also those that are no longer on the screen. */
  async #notifications(): Promise<string[]> {
    await this.runCommand('Notifications: Show Notifications');
    const all = this.page.locator('.notifications-center .notification-list-item-message');
    await all
      .first()
      .waitFor({ timeout: COMMAND_MS })
      .catch(() => undefined);
    return all.allTextContents();
  }

  async close(): Promise<void> {
    await this.#workbench.close();
    await this.server.stop();
  }

  get #input(): Locator {
    return this.page.locator('.quick-input-widget input:not([type=checkbox])').first();
  }

  #row(text: string | RegExp): Locator {
    return this.page.locator('.quick-input-list .monaco-list-row', { hasText: text });
  }
}

/** Runs a story of a user in a new VS Code. A failure leaves a screenshot, and its error has the notifications. */
export async function journey(
  name: string,
  options: Parameters<typeof User.launch>[0],
  story: (person: User) => Promise<void>,
): Promise<void> {
  const person = await User.launch(options);
  try {
    await person.screenshotOnFailure(name, () => story(person));
  } finally {
    await person.close();
  }
}
