import { randomUUID } from 'node:crypto';
import { window } from 'vscode';
import { ProfileNameSchema } from '../../protocol/profile-name.ts';
import { formatBytes } from '../base/format.ts';
import { SETUP_LOG_BYTES } from '../../protocol/setup.ts';
import { withProgress } from '../base/progress.ts';
import { withoutEscapes } from '../base/without-escapes.ts';
import { sanitize } from '../base/sanitize.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { onHost } from '../connection/host-status.ts';
import { hostOfTarget } from '../connection/target-host.ts';
import type { SetupLogs } from './setup-logs.ts';

/** Shows what the newest setup of a profile printed. `given`: its name, or `{ host, profile }`; a person is asked for what is missing. */
export async function readSetupLog(
  connection: Connection,
  logs: Pick<SetupLogs, 'show'>,
  given: unknown,
): Promise<string | undefined> {
  const { host, profile } = await chooseProfile(connection, 'Show Setup Log', given);
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
  const { host, profile } = await chooseProfile(connection, 'Run Setup Again', given);
  if (profile === undefined) return undefined;
  const output = randomUUID();
  const decoder = new TextDecoder();
  // The output goes to the connection that asked.
  const peer = await host.ready();
  let text = '';
  const replace = await logs.show(host.name, profile, text);
  const stop = peer.onNotification('setup/output', (params, bytes) => {
    if (params.output !== output) return;
    // No more comes than a log keeps, from a host that is what it should be.
    if (text.length >= SETUP_LOG_BYTES) return;
    text += plain(decoder.decode(bytes, { stream: true }));
    replace(text);
  });
  try {
    const { setup } = await withProgress(
      onHost(`Running the setup of ${profile}`, host.name, 1),
      (report, signal) =>
        peer.call(
          'setup/run',
          { profile, output },
          { signal, onProgress: ({ stage }) => report(sanitize(stage)) },
        ),
    );
    const size = setup.bytes === null ? '' : ` (${formatBytes(setup.bytes)} more than its base)`;
    void window.showInformationMessage(
      `${onHost(`New sandboxes of ${profile}`, host.name, 1)} start from the new image${size}.`,
    );
    return profile;
  } finally {
    stop();
  }
}

async function chooseProfile(
  connection: Connection,
  what: string,
  given: unknown,
): Promise<{ readonly host: HostConnection; readonly profile: string | undefined }> {
  // Kept: the window's folders may be others when the person has chosen.
  const host = hostOfTarget(connection, given) ?? connection.own;
  const name = typeof given === 'object' && given !== null && 'profile' in given ? given.profile : given;
  const named = ProfileNameSchema.safeParse(name);
  if (named.success) return { host, profile: named.data };
  const { profiles } = await host.call('profile/list', {});
  const picked = await window.showQuickPick(
    profiles.map(({ name: label, image }) => ({ label, description: sanitize(image) })),
    { title: onHost(what, host.name, connection.known.length), placeHolder: 'Of which agent?' },
  );
  return { host, profile: picked?.label };
}

/** A document shows colours and movements of the cursor as characters. */
function plain(output: string): string {
  return withoutEscapes(output).replaceAll('\r\n', '\n').replaceAll('\r', '\n');
}
