import { Uri, commands, window, workspace } from 'vscode';
import type { QuickPickItem, WorkspaceFolder } from 'vscode';
import { CREDENTIAL_PRESETS } from '../../protocol/credential-presets.ts';
import { PRESETS } from '../../protocol/presets/index.ts';
import { PRESET_NAMES, type PresetName } from '../../protocol/presets/names.ts';
import { findPackages } from '../../project/packages.ts';
import { PROFILE_FILE } from '../../project/profile-file.ts';
import { profileNameFor, type StarterProfile, starterProfile } from '../../project/starter.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { sanitize } from '../base/sanitize.ts';

interface AgentItem extends QuickPickItem {
  /** Null: a program that is none of the presets. */
  readonly preset: PresetName | null;
}

const CREATE = 'Create holdfast.yaml';
/** Characters of one line of what is installed. */
const MOST_SHOWN = 500;

/**
 * Writes a first `holdfast.yaml` into a folder that has none: asks for the agent, shows what a deploy will install, and asks for a
 * key that the host does not have. False where the person declines. Errors: those of `findPackages`.
 */
export async function ensureProfile(host: HostConnection, folder: WorkspaceFolder): Promise<boolean> {
  const file = Uri.joinPath(folder.uri, PROFILE_FILE);
  if (await exists(file)) return true;
  const picked = await window.showQuickPick(agentItems(), {
    title: `${sanitize(folder.name)} has no ${PROFILE_FILE} yet`,
    placeHolder: 'Which agent is to work on it?',
    matchOnDescription: true,
  });
  if (picked === undefined) return false;
  const starter = starterProfile(profileNameFor(folder.name), picked.preset);
  if (!(await confirm(folder, picked.preset, starter))) return false;
  // Another program may have written one meanwhile.
  if (!(await exists(file))) await workspace.fs.writeFile(file, Buffer.from(starter.text));
  await window.showTextDocument(file, { preview: false });
  if (starter.secret !== null) await ensureSecret(host, starter.secret);
  return true;
}

async function exists(file: Uri): Promise<boolean> {
  try {
    await workspace.fs.stat(file);
    return true;
  } catch {
    return false;
  }
}

function agentItems(): readonly AgentItem[] {
  return [
    ...PRESET_NAMES.map((preset): AgentItem => {
      const { title, credential } = PRESETS[preset];
      return {
        label: title,
        description: `with ${CREDENTIAL_PRESETS[credential.name].secret}`,
        preset,
      };
    }),
    { label: 'Another Program', description: 'the file says where to put it', preset: null },
  ];
}

async function confirm(
  folder: WorkspaceFolder,
  preset: PresetName | null,
  { secret, packages }: StarterProfile,
): Promise<boolean> {
  const { notes } = preset === null ? { notes: [] } : await findPackages(folder.uri.fsPath, packages);
  const detail =
    preset === null
      ? [
          'It runs your prompts as shell scripts in a sandboxed copy of this folder, until you name a program.',
        ]
      : [
          `${PRESETS[preset].title} works in a sandboxed copy of this folder. A container of its own installs, once:`,
          ...notes,
          '',
          `The key, ${secret ?? ''}, stays outside of the sandbox.`,
        ];
  const choice = await window.showInformationMessage(
    `Create ${PROFILE_FILE} in ${sanitize(folder.name)}?`,
    { modal: true, detail: detail.map((line) => sanitize(line, MOST_SHOWN)).join('\n') },
    CREATE,
  );
  return choice === CREATE;
}

/** A person who has no key at hand goes on without: the agent's first request says what is missing. */
async function ensureSecret(host: HostConnection, name: string): Promise<void> {
  const { secrets } = await host.call('secret/list', {});
  if (!secrets.some((secret) => secret.name === name && secret.profile === null))
    await commands.executeCommand('holdfast.setSecret', { host: host.name, secret: name });
}
