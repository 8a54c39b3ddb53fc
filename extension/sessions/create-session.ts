import { randomUUID } from 'node:crypto';
import { basename } from 'node:path';
import { QuickPickItemKind, commands, window, workspace } from 'vscode';
import type { QuickPickItem, WorkspaceFolder } from 'vscode';
import type { ConfigurationList } from '../../protocol/agent-config.ts';
import type { SecretDestination } from '../../protocol/deploy.ts';
import type { Session } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { deployProject } from '../../project/deploy.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';
import { onHost } from '../connection/host-status.ts';
import { hostForNew, hostOfTarget } from '../connection/target-host.ts';
import { withProgress } from '../base/progress.ts';
import { sanitize } from '../base/sanitize.ts';
import { ensureProfile } from './starter-profile.ts';

/** Where the session will be. */
interface Place {
  readonly host: HostConnection;
  /** The home of this machine. */
  readonly home: string;
}

/** What a session starts from: a profile by its name, an open folder, or the folder of an example. */
export type SessionSource =
  { readonly profile: string } | { readonly folder: WorkspaceFolder } | { readonly example: string };
type Choice = SessionSource | { readonly command: string };

const MANAGE_TRUST = 'Manage Trust';

/**
 * Creates a session of a profile, of an open folder, or of the example. Undefined where the person cancels or chooses
 * to do something else first. `given`: a host of the Sessions view, or, from a program, the name of a profile; default:
 * where something new begins. `example`: the folder of an agent that needs nothing but its image.
 */
export async function createSession(
  connection: Connection,
  given: unknown,
  example: string,
): Promise<Session | undefined> {
  // Kept: the window's folders may be others when the person has chosen.
  const host = hostOfTarget(connection, given) ?? hostForNew(connection);
  const title = onHost('New Session', host.name, connection.known.length);
  const choice = typeof given === 'string' ? { profile: given } : await pick(host, title, example);
  if (choice === undefined) return undefined;
  if ('command' in choice) {
    await commands.executeCommand(choice.command);
    return undefined;
  }
  const profile = await profileOf({ host, home: connection.home }, choice);
  return profile === undefined ? undefined : createSessionOf(connection, host, profile, randomUUID());
}

/** Creates a session of a profile. Errors: `permission_denied` for a host that names a session of another one. */
export async function createSessionOf(
  connection: Connection,
  host: HostConnection,
  profile: string,
  opId: string,
): Promise<Session> {
  const { session } = await host.call('session/create', { profile, opId });
  if (!connection.owns(host, session.id))
    throw new HoldfastError('permission_denied', `${host.name} says that the session is one of another host`);
  return session;
}

/** Its name, once it is deployed. Undefined where the person declines. */
export async function profileOf(place: Place, source: SessionSource): Promise<string | undefined> {
  if ('profile' in source) return source.profile;
  return 'folder' in source ? deployFolder(place, source.folder) : deploy(place, source.example);
}

/** Undefined where the person cancels, or declines to have a configuration copied. */
async function deploy({ host, home }: Place, directory: string): Promise<string | undefined> {
  const declined = new HoldfastError('cancelled', 'The deploy was cancelled');
  try {
    // A setup can take minutes.
    return await withProgress(
      onHost(`Deploying ${sanitize(basename(directory))}`, host.name, 1),
      async (report, signal) => {
        const { profile } = await deployProject(host, {
          directory,
          home,
          opId: randomUUID(),
          signal,
          onProgress: ({ stage }) => report(sanitize(stage, MOST_SHOWN)),
          onConfiguration: async (list) => {
            if (!(await confirmConfiguration(list))) throw declined;
          },
          onDestinations: async (list) => {
            if (!(await confirmDestinations(list))) throw declined;
          },
        });
        return profile.name;
      },
    );
  } catch (error) {
    if (error === declined || HoldfastError.from(error).code === 'cancelled') return undefined;
    throw withHost(error, host.name);
  }
}

/** Names the host in the error of a setup, whose log is there. */
function withHost(error: unknown, host: string): unknown {
  if (!(error instanceof HoldfastError) || error.details?.['setupOf'] === undefined) return error;
  const { code, message, why, next, details } = error;
  return new HoldfastError(code, message, {
    why,
    next,
    details: { ...details, setupOn: host },
    cause: error,
  });
}

/** Characters of one line of what a deploy is doing. */
const MOST_SHOWN = 200;
const COPY = 'Copy and Deploy';
const DEPLOY = 'Deploy';
const MOST_LISTED = 15;

/** Lists what sandboxes will begin with, before it is sent. */
async function confirmConfiguration({ folder, files, leftOut }: ConfigurationList): Promise<boolean> {
  const lines = (list: readonly string[]): string[] =>
    list.length > MOST_LISTED
      ? [...list.slice(0, MOST_LISTED), `and ${list.length - MOST_LISTED} more`]
      : [...list];
  const detail = [
    ...lines(files.map(({ path }) => path)),
    ...(leftOut.length === 0 ? [] : ['', 'Left out:']),
    ...lines(leftOut.map(({ path, why }) => `${path} (${why})`)),
  ];
  const choice = await window.showInformationMessage(
    `New sandboxes will begin with your configuration from ${sanitize(folder)}.`,
    { modal: true, detail: detail.map((line) => sanitize(line, MOST_SHOWN)).join('\n') },
    COPY,
  );
  return choice === COPY;
}

/** Asks before a project gets to send secrets to hosts of its own choice. */
async function confirmDestinations(list: readonly SecretDestination[]): Promise<boolean> {
  const lines = list
    .slice(0, MOST_LISTED)
    .map(({ secret, host, by }) =>
      by === 'sessions'
        ? `sessions send ${secret} to ${host}`
        : `the setup has ${secret} and may reach ${host}`,
    );
  if (list.length > MOST_LISTED) lines.push(`and ${list.length - MOST_LISTED} more`);
  const choice = await window.showWarningMessage(
    'The project sends secrets that are for all profiles to hosts of its own choice.',
    { modal: true, detail: lines.map((line) => sanitize(line, MOST_SHOWN)).join('\n') },
    DEPLOY,
  );
  return choice === DEPLOY;
}

async function pick(host: HostConnection, title: string, example: string): Promise<Choice | undefined> {
  const { profiles } = await host.call('profile/list', {});
  const folders = (workspace.workspaceFolders ?? []).filter(({ uri }) => uri.scheme === 'file');
  const items: (QuickPickItem & { choice?: Choice })[] = [
    ...profiles.map(({ name, agent, persistent }) => ({
      label: name,
      description: `${agent.protocol}${persistent ? '' : ' · ephemeral'}`,
      choice: { profile: name },
    })),
    ...(folders.length === 0 ? [] : [{ label: 'Open folders', kind: QuickPickItemKind.Separator }]),
    ...folders.map((folder) => ({
      label: `$(folder) ${sanitize(folder.name)}`,
      description: 'deploy this folder and create a session',
      choice: { folder },
    })),
    { label: 'Get started', kind: QuickPickItemKind.Separator },
    {
      label: '$(folder-opened) Open Folder…',
      description: 'a project for an agent to work on',
      choice: { command: 'workbench.action.files.openFolder' },
    },
    {
      label: '$(beaker) Try the Example',
      description: 'an agent that counts, and still knows its count in a new sandbox',
      choice: { example },
    },
  ];
  const picked = await window.showQuickPick(items, {
    title,
    placeHolder:
      profiles.length === 0 && folders.length === 0
        ? 'No agent yet. Open a project folder, or try the example.'
        : 'Start from a deployed agent or from a folder',
  });
  return picked?.choice;
}

/** Deploys the folder and returns the name of its profile. Undefined where the person declines. */
async function deployFolder(place: Place, folder: WorkspaceFolder): Promise<string | undefined> {
  if (!workspace.isTrusted) {
    void window
      .showWarningMessage(
        `${sanitize(folder.name)} was not deployed, because this window does not trust the folder. ` +
          'Trust it, then create the session again.',
        MANAGE_TRUST,
      )
      .then((chosen) => {
        if (chosen === MANAGE_TRUST) void commands.executeCommand('workbench.trust.manage');
      });
    return undefined;
  }
  if (!(await ensureProfile(place.host, folder))) return undefined;
  return deploy(place, folder.uri.fsPath);
}
