import { window } from 'vscode';
import type { QuickPickItem } from 'vscode';
import { SecretNameSchema } from '../../protocol/secret-name.ts';
import { SECRET_LIMITS } from '../../protocol/secrets.ts';
import { sanitize } from '../base/sanitize.ts';
import { validationMessage } from '../base/validation-message.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { onHost } from '../connection/host-status.ts';

interface ScopeItem extends QuickPickItem {
  /** Null: all profiles. */
  readonly profile: string | null;
}

const ALL_PROFILES: ScopeItem = { label: 'All Profiles', profile: null };

/**
 * Asks for the name, the scope and the value of a secret. The value is typed into a password box and goes to the
 * supervisor of one host alone, which every question names. `known`: how many hosts there are. `given`: a name that is known already;
 * the secret is for all profiles then. Returns the secret's name; undefined where the person cancels.
 */
export async function setSecret(
  host: HostConnection,
  known: number,
  given?: string,
): Promise<string | undefined> {
  const title = onHost('Set Secret', host.name, known);
  const name =
    given ??
    (await window.showInputBox({
      title,
      prompt: 'The name of the secret, for example ANTHROPIC_API_KEY',
      validateInput: (text) => validationMessage(SecretNameSchema, text, 'a name'),
    }));
  if (name === undefined) return undefined;
  const scope = given === undefined ? await pickScope(host, title) : ALL_PROFILES;
  if (scope === undefined) return undefined;
  const value = await window.showInputBox({
    title,
    prompt: `The value of ${name}. No sandbox, history or log gets it.`,
    password: true,
    ignoreFocusOut: true,
    validateInput: (text) => valueProblem(Buffer.byteLength(text)),
  });
  if (value === undefined) return undefined;
  const { profile } = scope;
  await host.call('secret/set', profile === null ? { name } : { name, profile }, {
    bytes: Buffer.from(value),
  });
  window.setStatusBarMessage(`${name} is set (${sanitize(scope.label)})`, 10_000);
  return name;
}

async function pickScope(host: HostConnection, title: string): Promise<ScopeItem | undefined> {
  const { profiles } = await host.call('profile/list', {});
  if (profiles.length === 0) return ALL_PROFILES;
  const items = profiles.map(({ name }): ScopeItem => ({
    label: name,
    description: 'sessions of this profile only',
    profile: name,
  }));
  return window.showQuickPick([ALL_PROFILES, ...items], { title, placeHolder: 'Which sessions is it for?' });
}

function valueProblem(bytes: number): string | undefined {
  const { minBytes, maxBytes } = SECRET_LIMITS;
  if (bytes < minBytes) return `A secret has at least ${minBytes} characters.`;
  return bytes > maxBytes ? `A secret has at most ${maxBytes} bytes.` : undefined;
}
