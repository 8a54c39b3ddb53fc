import { resolve } from 'node:path';
import type { ConfigurationList } from '../../protocol/agent-config.ts';
import { type DeployResult, LARGE_SEED_BYTES } from '../../protocol/deploy-result.ts';
import type { ProfileSummary } from '../../protocol/entities.ts';
import type { Params } from '../../protocol/methods.ts';
import { inputOfKind } from '../../protocol/turn-kinds.ts';
import { confirmDeletion, confirmDestinations } from '../confirm.ts';
import type { Context } from '../context.ts';
import { newOpId } from '../op-id.ts';
import { REMOVE_SECRET_FILES } from './setup.ts';
import type { Registry } from '../registry.ts';
import { formatRelativeTime, formatSize } from '../render/quantity.ts';
import { formatTable } from '../render/table.ts';
import { pluralize, quoteForShell, sanitizeLine } from '../render/text.ts';

interface DeployFlags {
  readonly watch?: boolean;
  readonly removeSecretFiles?: boolean;
  readonly yes?: boolean;
}

export function registerProfiles(registry: Registry): void {
  const { root } = registry;
  const deploy = registry
    .command(root, {
      usage: 'deploy <dir>',
      description: 'deploy the profile in DIR/holdfast.yaml and the code beside it; workspaces are kept',
      operands: ['directory'],
      examples: [
        'holdfast deploy examples/counter',
        'holdfast deploy . --watch        deploy again after every change',
      ],
    })
    .option('--watch', 'deploy again whenever a file changes')
    .option('--remove-secret-files', REMOVE_SECRET_FILES)
    .option('--yes', 'let the project send secrets that are for all profiles to hosts of its own choice');
  registry.setAction(deploy, async (context, options: DeployFlags, directory: string) => {
    const absolute = resolve(context.io.cwd, directory);
    if (options.watch !== true) {
      await showDeployed(context, await deployOnce(context, absolute, options));
      return undefined;
    }
    const { deployAndWatch } = await import('../deploy-watch.ts');
    return deployAndWatch(context, absolute, {
      deploy: async () => showDeployed(context, await deployOnce(context, absolute, options)),
    });
  });

  const undeploy = registry
    .command(root, {
      usage: 'undeploy <profile>',
      description: 'permanently delete a profile, its code, its sessions and their workspaces',
      operands: ['profile'],
      examples: ['holdfast undeploy counter --force'],
    })
    .option('--force', 'do not ask for confirmation');
  registry.setAction(undeploy, async (context, options: { force?: boolean }, name: string) => {
    if (options.force !== true) await confirmUndeploy(context, name);
    const params: Params<'profile/undeploy'> = { profile: name, force: true, opId: newOpId() };
    const { sessionsDeleted } = await context.call('profile/undeploy', params, { stage: `Deleting ${name}` });
    if (context.json) await context.printJson({ profile: name, sessionsDeleted });
    else
      await context.print(`${sanitizeLine(name)} was deleted, with ${pluralize(sessionsDeleted, 'session')}`);
    return undefined;
  });

  const list = registry.command(root, { usage: 'profiles', description: 'list deployed profiles' });
  registry.setAction(list, async (context) => {
    const { profiles } = await context.call('profile/list', {});
    if (context.json) await context.printJson({ profiles });
    else if (profiles.length === 0) {
      await context.print('No profiles are deployed yet.');
      await context.printHint(
        `Deploy a folder that contains a holdfast.yaml: ${context.command('deploy DIR')}`,
      );
    } else await context.print(...profileTable(context, profiles));
    return undefined;
  });
}

async function deployOnce(
  context: Context,
  directory: string,
  { removeSecretFiles, yes }: DeployFlags,
): Promise<DeployResult> {
  const { deployProject } = await import('../../project/deploy.ts');
  context.progress.begin(`Deploying ${directory}`);
  try {
    return await deployProject(context.client(), {
      directory,
      home: context.home,
      opId: newOpId(),
      removeSecretFiles,
      signal: context.interrupted,
      onProgress: (report) => context.progress.update(report),
      onConfiguration: async (list) => {
        if (context.json) return;
        context.progress.end();
        await showConfiguration(context, list);
        context.progress.begin(`Deploying ${directory}`);
      },
      onDestinations: async (destinations) => {
        if (yes === true) return;
        context.progress.end();
        await confirmDestinations(context, destinations);
        context.progress.begin(`Deploying ${directory}`);
      },
    });
  } finally {
    context.progress.end();
  }
}

async function showDeployed(context: Context, result: DeployResult): Promise<void> {
  if (context.json) {
    await context.printJson(result);
    return;
  }
  const { profile, replaced, unchanged, warnings } = result;
  for (const warning of warnings) await context.printNote(`warning: ${sanitizeLine(warning)}`);
  const what = unchanged ? 'is unchanged at' : replaced ? 'was updated to' : 'was deployed as';
  const extent = `${pluralize(profile.files, 'file')}, ${formatSize(profile.bytes)}`;
  await context.print(
    `${context.style.bold(sanitizeLine(profile.name))} ${what} version ${profile.version} (${extent})`,
  );
  if (result.preset !== null)
    await context.print(
      `Its agent is the preset ${sanitizeLine(result.preset)}, run as ${agentLine(profile)}`,
    );
  await reportFiles(context, result);
  if (!unchanged)
    await context.printHint(`Run it: ${context.command(`run ${profile.name} ${exampleInput(profile)}`)}`);
}

const MOST_LISTED = 20;

/** Lists what sandboxes will begin with, before it is sent. */
async function showConfiguration(
  context: Context,
  { folder, files, leftOut }: ConfigurationList,
): Promise<void> {
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  await context.printNote(
    `Your configuration (${sanitizeLine(folder)}): new sandboxes begin with ${pluralize(files.length, 'file')}, ${formatSize(bytes)}`,
  );
  for (const { path } of files.slice(0, MOST_LISTED)) await context.printNote(`  ${sanitizeLine(path)}`);
  if (files.length > MOST_LISTED) await context.printNote(`  and ${files.length - MOST_LISTED} more`);
  for (const { path, why } of leftOut.slice(0, MOST_LISTED))
    await context.printNote(`  left out: ${sanitizeLine(path)} (${sanitizeLine(why)})`);
  if (leftOut.length > MOST_LISTED)
    await context.printNote(`  and ${leftOut.length - MOST_LISTED} more left out; --json lists all`);
}

/** Reports which files the deploy ignored, and warns if every new workspace starts with much data. */
async function reportFiles(context: Context, { ignored, seed }: DeployResult): Promise<void> {
  if (ignored.files > 0) {
    const biggest = ignored.largest
      .slice(0, 3)
      .map(({ path, files, bytes }) => {
        const extent = files === 1 ? formatSize(bytes) : `${pluralize(files, 'file')}, ${formatSize(bytes)}`;
        return `${sanitizeLine(path)} (${extent})`;
      })
      .join(', ');
    const atLeast = ignored.complete ? '' : 'at least ';
    const extent = `${atLeast}${pluralize(ignored.files, 'file')}, ${formatSize(ignored.bytes)}`;
    await context.printNote(`Ignored by .gitignore and .holdfastignore: ${extent}; the largest: ${biggest}`);
  }
  if (seed !== null && seed.bytes > LARGE_SEED_BYTES) {
    await context.printNote(
      `warning: every new workspace starts with ${formatSize(seed.bytes)} (${pluralize(seed.files, 'file')}). ` +
        'List what sessions do not need in `workspace.ignore` or in .holdfastignore',
    );
  }
}

function agentLine({ agent }: ProfileSummary): string {
  return sanitizeLine((agent.command ?? []).join(' '));
}

function exampleInput(profile: ProfileSummary): string {
  return inputOfKind(profile.agent.protocol) === 'json' ? quoteForShell('{}') : `'…'`;
}

async function confirmUndeploy(context: Context, name: string): Promise<void> {
  const { profiles } = await context.call('profile/list', {});
  const profile = profiles.find((one) => one.name === name);
  if (profile === undefined) return; // the supervisor reports the error
  const { sessions } = await context.call('session/list', { profile: name, limit: 1000 });
  const bytes = sessions.reduce((sum, session) => sum + (session.workspaceBytes ?? 0), 0);
  const names = sessions.slice(0, 5).map((session) => sanitizeLine(session.name));
  const more = sessions.length > names.length ? ' …' : '';
  const workspaces = `${pluralize(profile.sessions, 'session')} with ${profile.sessions === 1 ? 'its workspace' : 'their workspaces'}`;
  await confirmDeletion(context, {
    what: `Permanently delete profile ${sanitizeLine(name)}`,
    consequences: [
      `its code (${pluralize(profile.files, 'file')}, ${formatSize(profile.bytes)}) will be deleted`,
      profile.sessions === 0
        ? 'it has no sessions'
        : `${workspaces} (${formatSize(bytes)}) will be deleted: ${names.join(', ')}${more}`,
    ],
  });
}

function profileTable(context: Context, profiles: readonly ProfileSummary[]): string[] {
  const { style } = context;
  const now = context.io.now();
  return formatTable<ProfileSummary>(
    profiles,
    [
      { title: 'NAME', value: (profile) => profile.name, paint: () => style.bold },
      {
        title: 'AGENT',
        value: ({ agent }) =>
          [agent.protocol, agent.entry ?? (agent.command ?? []).join(' ')].join(' ').trim(),
        shrinkPriority: 2,
      },
      { title: 'WORKSPACE', value: (profile) => (profile.persistent ? 'persistent' : 'ephemeral') },
      { title: 'SESSIONS', value: (profile) => String(profile.sessions), align: 'right' },
      { title: 'VERSION', value: (profile) => String(profile.version), align: 'right' },
      { title: 'DEPLOYED', value: (profile) => formatRelativeTime(profile.deployedAt, now) },
      { title: 'FROM', value: (profile) => profile.source, shrinkPriority: 3 },
    ],
    { width: context.stdout.columns, header: style.dim },
  );
}
