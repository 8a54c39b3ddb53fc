import type { Uri } from 'vscode';
import { sandboxTerminalSettings } from './sandbox-terminal-settings.ts';

/** Where VS Code looks for the configuration of a folder of ours. No agent can put a file there, and no listing has it. */
export const SETTINGS_PATH = '/.vscode/settings.json';

/**
 * Settings of the folder of every session and snapshot. The features that they turn off would take the path of the folder or of a file in it for a
 * path of this machine (docs/editor.md has the table of all). New terminals are those of a sandbox.
 */
const FOLDER_SETTINGS = {
  // *Initialize Repository* made a repository of the machine's root directory.
  'git.enabled': false,
  // *Run Script* and *Debug* would start in `/workspace` of this machine.
  'npm.scriptHover': false,
  'debug.javascript.codelens.npmScripts': 'never',
  'npm.autoDetect': 'off',
  'typescript.tsc.autoDetect': 'off',
  'js/ts.tsc.autoDetect': 'off',
  // The npm of this machine would ask its registry about names that the agent chose, and fetch packages.
  'npm.fetchOnlinePackageInfo': false,
  'typescript.disableAutomaticTypeAcquisition': true,
  'js/ts.tsserver.automaticTypeAcquisition.enabled': false,
  ...sandboxTerminalSettings(),
} as const;

export function isFolderSettings({ path }: Uri): boolean {
  return path === SETTINGS_PATH;
}

/** The text of the file; `title` is that of the window, where it is known. */
export function folderSettings(title?: string): string {
  const settings = { ...(title === undefined ? {} : { 'window.title': title }), ...FOLDER_SETTINGS };
  return `${JSON.stringify(settings, null, 2)}\n`;
}
