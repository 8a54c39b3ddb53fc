import { FileSystemError, commands, window } from 'vscode';

const CONNECT = 'Connect to Host…';
/** Homes that are asked about. An agent can write links to as many as it likes. */
const MOST_HOMES = 5;

/**
 * The error of a link whose home is that of no host of this window; `home`: an id, which is letters and digits. Offers to
 * connect to its host, once for each home: `offered` has those that were offered before.
 */
export function unknownHomeError(home: string, offered?: Set<string>): FileSystemError {
  const text =
    `This link belongs to another machine's Holdfast (home ${home}). ` +
    'If you reach that machine by ssh, run “Agent: Connect to Host…” first';
  if (offered !== undefined && !offered.has(home) && offered.size < MOST_HOMES) {
    offered.add(home);
    void offer(text);
  }
  return FileSystemError.Unavailable(text);
}

async function offer(text: string): Promise<void> {
  if ((await window.showWarningMessage(text, CONNECT)) === undefined) return;
  // The command reports its own failures.
  await commands.executeCommand('holdfast.connectHost').then(undefined, () => undefined);
}
