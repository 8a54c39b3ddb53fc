import type { Uri } from 'vscode';
import { sandboxTerminalSettings } from './sandbox-terminal-settings.ts';

/** Where VS Code looks for the settings of a session's folder. No agent can write there, and no listing shows it. */
export const SETTINGS_PATH = '/.vscode/settings.json';

/**
 * Settings of the folder of every session and snapshot. They turn off features that would use a path of the workspace
 * as a path of this machine (docs/editor.md lists them all), and open new terminals in the sandbox.
 */
const FOLDER_SETTINGS = {
  // *Initialize Repository* would create a repository in the root directory of this machine.
  'git.enabled': false,
  // *Run Script* and *Debug* would run in `/workspace` of this machine.
  'npm.scriptHover': false,
  'debug.javascript.codelens.npmScripts': 'never',
  'npm.autoDetect': 'off',
  'typescript.tsc.autoDetect': 'off',
  'js/ts.tsc.autoDetect': 'off',
  // The npm of this machine would query its registry for names that the agent chose, and download packages.
  'npm.fetchOnlinePackageInfo': false,
  'typescript.disableAutomaticTypeAcquisition': true,
  'js/ts.tsserver.automaticTypeAcquisition.enabled': false,
  // The language server knows no folder but those of this machine, and would list them.
  'typescript.suggest.paths': false,
  'javascript.suggest.paths': false,
  'js/ts.suggest.paths': false,
  ...sandboxTerminalSettings(),
} as const;

export function isFolderSettings({ path }: Uri): boolean {
  return path === SETTINGS_PATH;
}

/** The content of the settings file. `title`: the title of the window, if known. */
export function folderSettings(title?: string): string {
  const settings = { ...(title === undefined ? {} : { 'window.title': title }), ...FOLDER_SETTINGS };
  return `${JSON.stringify(settings, null, 2)}\n`;
}
