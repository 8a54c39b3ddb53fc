import { EventEmitter, ThemeIcon } from 'vscode';
import type { ExtensionTerminalOptions } from 'vscode';

/**
 * A terminal that closes immediately. Without one VS Code would report an error, even to a person who pressed Escape.
 */
export function cancelledTerminal(): ExtensionTerminalOptions {
  return terminalOf('Cancelled', (_write, end) => end());
}

/** A terminal that shows why a terminal could not be opened. Enter tries again, another key closes it. */
export function messageTerminal(text: string, tryAgain: () => void): ExtensionTerminalOptions {
  return terminalOf(
    'No Terminal',
    (write) => write(`${text}\r\n\r\nPress Enter to try again, or any other key to close this.\r\n`),
    (keys) => {
      if (keys === '\r') tryAgain();
    },
  );
}

/** A terminal without a process. Any key closes it. */
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
