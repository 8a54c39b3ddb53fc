import { EventEmitter, ThemeIcon } from 'vscode';
import type { ExtensionTerminalOptions } from 'vscode';

/** A terminal that is gone at once: VS Code reports an error where a profile opens none, also to a person who has pressed Escape. */
export function cancelledTerminal(): ExtensionTerminalOptions {
  return terminalOf('Cancelled', (_write, end) => end());
}

/** A terminal that says why there is none, until a key is pressed; Enter tries again. */
export function messageTerminal(text: string, tryAgain: () => void): ExtensionTerminalOptions {
  return terminalOf(
    'No terminal',
    (write) => write(`${text}\r\n\r\nPress Enter to try again, or another key to close this.\r\n`),
    (keys) => {
      if (keys === '\r') tryAgain();
    },
  );
}

/** A terminal without a process, which a key ends. */
function terminalOf(
  name: string,
  opened: (write: (text: string) => void, end: () => void) => void,
  typed: (keys: string) => void = () => undefined,
): ExtensionTerminalOptions {
  const written = new EventEmitter<string>();
  const ended = new EventEmitter<void>();
  const end = (): void => ended.fire();
  return {
    name,
    iconPath: new ThemeIcon('warning'),
    pty: {
      onDidWrite: written.event,
      onDidClose: ended.event,
      open: () => opened((text) => written.fire(text), end),
      handleInput: (keys) => {
        end();
        typed(keys);
      },
      close: () => {
        written.dispose();
        ended.dispose();
      },
    },
  };
}
