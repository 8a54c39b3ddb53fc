import { randomUUID } from 'node:crypto';
import { QuickPickItemKind, Uri, window, workspace } from 'vscode';
import type { QuickPickItem, WorkspaceFolder } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Session } from '../../protocol/entities.ts';
import { ProfileNameSchema } from '../../protocol/profile.ts';
import type { Connection } from '../connection/connection.ts';
import { inert } from '../inert.ts';

const PROFILE_FILE = 'holdfast.yaml';

type Choice = { readonly profile: string } | { readonly folder: WorkspaceFolder };

/** A new session of a profile, or of the folder that is open; undefined where the person thought better of it. */
export async function newSession(connection: Connection, named: unknown): Promise<Session | undefined> {
  const choice = typeof named === 'string' ? { profile: named } : await pick(connection);
  if (choice === undefined) return undefined;
  const profile = 'profile' in choice ? choice.profile : await deployFolder(connection, choice.folder);
  if (profile === undefined) return undefined;
  const { session } = await connection.call('session/create', { profile, opId: randomUUID() });
  return session;
}

async function pick(connection: Connection): Promise<Choice | undefined> {
  const { profiles } = await connection.call('profile/list', {}, { repeatable: true });
  const folders = (workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === 'file');
  if (profiles.length === 0 && folders.length === 0) {
    throw new HoldfastError('not_found', 'There is no profile to make a session of', {
      next: 'open the folder of an agent, or deploy one with `holdfast deploy DIRECTORY`',
    });
  }
  const items: (QuickPickItem & { choice?: Choice })[] = [
    ...profiles.map(({ name, agent, persistent }) => ({
      label: name,
      description: `${agent.protocol}${persistent ? '' : ' · ephemeral'}`,
      choice: { profile: name },
    })),
    ...(folders.length === 0 ? [] : [{ label: 'Open folders', kind: QuickPickItemKind.Separator }]),
    ...folders.map((folder) => ({
      label: `$(folder) ${inert(folder.name)}`,
      description: 'deploy it as a profile and begin a session',
      choice: { folder },
    })),
  ];
  const picked = await window.showQuickPick(items, {
    title: 'New Session',
    placeHolder: 'Profile of the new session',
  });
  return picked?.choice;
}

/** The name of the profile that the folder is from now on. */
async function deployFolder(connection: Connection, folder: WorkspaceFolder): Promise<string | undefined> {
  if (!workspace.isTrusted) {
    throw new HoldfastError('permission_denied', `${folder.name} is not deployed`, {
      why: 'this window does not trust its folder',
      next: 'trust it first (Workspaces: Manage Workspace Trust)',
    });
  }
  const file = Uri.joinPath(folder.uri, PROFILE_FILE);
  if (!(await exists(file)) && !(await writeFirst(file, folder.name))) return undefined;
  const { profile } = await connection.call('profile/deploy', {
    directory: folder.uri.fsPath,
    opId: randomUUID(),
  });
  return profile.name;
}

async function exists(file: Uri): Promise<boolean> {
  try {
    await workspace.fs.stat(file);
    return true;
  } catch {
    return false;
  }
}

async function writeFirst(file: Uri, folder: string): Promise<boolean> {
  const WRITE = 'Write holdfast.yaml';
  const choice = await window.showInformationMessage(
    `${inert(folder)} has no holdfast.yaml yet.`,
    {
      modal: true,
      detail:
        'A first one makes it a profile whose turns are shell scripts in a sandbox with a copy of the folder.',
    },
    WRITE,
  );
  if (choice !== WRITE) return false;
  await workspace.fs.writeFile(file, Buffer.from(firstProfile(folder)));
  await window.showTextDocument(file, { preview: false });
  return true;
}

/** A profile that works as it stands: each turn is a shell script. */
export function firstProfile(folder: string): string {
  const plain = folder
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '');
  const name = ProfileNameSchema.safeParse(plain).success ? plain : 'project';
  return [
    `name: ${name}`,
    '# Each turn runs this program with its prompt on standard input. Put your agent here.',
    'agent: { protocol: command, command: [sh] }',
    '# /workspace outlives the sandbox.',
    'persistence: persistent',
    '',
  ].join('\n');
}
