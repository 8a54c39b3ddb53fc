import { homedir, userInfo } from 'node:os';
import { basename } from 'node:path';
import { ThemeIcon, env, window } from 'vscode';

/** Opens a shell of this machine, which is named so that nobody takes it for one of a sandbox. */
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
  // In a window of a session VS Code may know no default shell.
  const candidates =
    process.platform === 'win32'
      ? [env.shell, process.env['COMSPEC'], 'cmd.exe']
      : [env.shell, userInfo().shell, process.env['SHELL']];
  return candidates.find((shell) => typeof shell === 'string' && shell !== '') ?? '/bin/sh';
}
