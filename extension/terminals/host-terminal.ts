import { homedir, userInfo } from 'node:os';
import { basename } from 'node:path';
import { ThemeIcon, env, window } from 'vscode';

/**
 * Opens a shell of this machine. Its name starts with `host:`, so that a person can tell it from a sandbox's terminal.
 */
export function openHostTerminal(): void {
  const shellPath = shellOfThisMachine();
  const terminal = window.createTerminal({
    name: `host: ${basename(shellPath).replace(/\.exe$/i, '')}`,
    iconPath: new ThemeIcon('home'),
    shellPath,
    cwd: homedir(),
  });
  terminal.show();
}

function shellOfThisMachine(): string {
  // In a window of a session VS Code may report no default shell.
  const candidates =
    process.platform === 'win32'
      ? [env.shell, process.env['COMSPEC'], 'cmd.exe']
      : [env.shell, userInfo().shell, process.env['SHELL']];
  return candidates.find((shell) => typeof shell === 'string' && shell !== '') ?? '/bin/sh';
}
