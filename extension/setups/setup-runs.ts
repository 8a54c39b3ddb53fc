import { randomUUID } from 'node:crypto';
import { stripVTControlCharacters } from 'node:util';
import { window } from 'vscode';
import { ProfileNameSchema } from '../../protocol/profile-name.ts';
import { formatBytes } from '../base/format.ts';
import { withProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { onHost } from '../connection/host-status.ts';
import type { SetupLogs } from './setup-logs.ts';

/** Shows what the newest setup of a profile printed. `given`: its name; a person is asked where a program gives none. */
export async function readSetupLog(
  connection: Connection,
  logs: Pick<SetupLogs, 'show'>,
  given: unknown,
): Promise<string | undefined> {
  // Kept: the window's folders may be others when the person has chosen.
  const host = connection.own;
  const profile = await profileOf(host, onHost('Show Setup Log', host.name, connection.known.length), given);
  if (profile === undefined) return undefined;
  const { result, bytes } = await host.callWithBytes('setup/log', { profile });
  const { state, error } = result.setup;
  const ending = error === null ? state : `${state}: ${sanitize(error.message, 500)}`;
  const isShort = result.truncated ? '\n… there was more' : '';
  await logs.show(
    host.name,
    profile,
    `${plain(Buffer.from(bytes).toString('utf8'))}${isShort}\n[${ending}]\n`,
  );
  return profile;
}

/**
 * Runs the setup of a profile again and shows its output meanwhile. Sandboxes then start from the new image. Errors: those of
 * `setup/run`.
 */
export async function runSetupAgain(
  connection: Connection,
  logs: Pick<SetupLogs, 'show'>,
  given: unknown,
): Promise<string | undefined> {
  const host = connection.own;
  const profile = await profileOf(host, onHost('Run Setup Again', host.name, connection.known.length), given);
  if (profile === undefined) return undefined;
  const output = randomUUID();
  const decoder = new TextDecoder();
  // The output goes to the connection that asked.
  const peer = await host.ready();
  let text = '';
  const replace = await logs.show(host.name, profile, text);
  const stop = peer.onNotification('setup/output', (params, bytes) => {
    if (params.output !== output) return;
    // No more comes than a log keeps.
    text += plain(decoder.decode(bytes, { stream: true }));
    replace(text);
  });
  try {
    const { setup } = await withProgress(`Running the setup of ${profile}`, (report, signal) =>
      peer.call(
        'setup/run',
        { profile, output },
        { signal, onProgress: ({ stage }) => report(sanitize(stage)) },
      ),
    );
    const size = setup.bytes === null ? '' : ` (${formatBytes(setup.bytes)} more than its base)`;
    void window.showInformationMessage(`New sandboxes of ${profile} start from the new image${size}.`);
    return profile;
  } finally {
    stop();
  }
}

async function profileOf(host: HostConnection, title: string, given: unknown): Promise<string | undefined> {
  const named = ProfileNameSchema.safeParse(given);
  if (named.success) return named.data;
  const { profiles } = await host.call('profile/list', {});
  const names = profiles.map(({ name, image }) => ({ label: name, description: sanitize(image) }));
  const picked = await window.showQuickPick(names, { title, placeHolder: 'Of which agent?' });
  return picked?.label;
}

/** A document shows colours and cursor movements as characters. */
function plain(output: string): string {
  return stripVTControlCharacters(output).replaceAll('\r\n', '\n').replaceAll('\r', '\n');
}
