import { dirname, join } from 'node:path';
import type { Command } from 'commander';
import { HostList } from '../../hosts/base/host-list.ts';
import { isRefusedByMachine } from '../../hosts/far/survey.ts';
import type { Host } from '../../hosts/base/host-list.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Context } from '../context.ts';
import { EXIT } from '../failure.ts';
import type { Registry } from '../registry.ts';
import { formatTable } from '../render/table.ts';
import { sanitizeLine } from '../render/text.ts';

export function registerHosts(registry: Registry): void {
  const group = registry.group('host', 'other machines that run sessions, reached by ssh');
  registerAdd(registry, group);
  registerList(registry, group);
  registerRemove(registry, group);
  registerDoctor(registry, group);
  registerUpdate(registry, group);
}

function registerAdd(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'add <name> <destination>',
      description: 'add a machine, log in, and bring Holdfast and its images there',
      withoutHost: true,
      examples: [
        'holdfast host add far ssh://me@far.example.com',
        'holdfast host add gpu gpu-box                 a name of ~/.ssh/config',
        'holdfast session list --host far',
      ],
    })
    .option('--no-connect', 'only add it to the list');
  registry.setAction(
    command,
    async (context, options: { connect: boolean }, name: string, destination: string) => {
      const list = new HostList(context.home);
      const isNew = !list.all().some((host) => host.name === name);
      const host = list.add(name, destination, new Date(context.io.now()));
      const images = options.connect ? await prepareOrForget(context, list, host, isNew) : null;
      if (context.json) await context.printJson({ host: list.get(host.name), images });
      else {
        await context.print(`${context.style.bold(host.name)} is ${sanitizeLine(host.destination)}`);
        await context.printHint(`Use it with any command: holdfast session list --host ${host.name}`);
      }
      return undefined;
    },
  );
}

/** A new host whose login failed was a typing error: it is not kept. One that lacks something is, so that it can be put right. */
async function prepareOrForget(context: Context, list: HostList, host: Host, isNew: boolean) {
  try {
    return await prepareHost(context, host.name);
  } catch (error) {
    const isReached = list.all().some(({ name, problem }) => name === host.name && problem !== undefined);
    if (isReached) throw isNew ? keptAnyway(host.name, HoldfastError.from(error)) : error;
    if (isNew) list.remove(host.name);
    throw error;
  }
}

function keptAnyway(name: string, { code, message, why, next, details }: HoldfastError): HoldfastError {
  return new HoldfastError(code, `${name} was added, but cannot be used yet: ${message}`, {
    why,
    next: `${next === undefined ? '' : `${next}; `}then \`holdfast host update ${name}\``,
    details,
  });
}

async function prepareHost(context: Context, name: string) {
  const { surveyHost } = await import('../../hosts/connector/connect-host.ts');
  const { hostOptions } = await import('../dial-host.ts');
  const { ensureHostImages } = await import('../../hosts/connector/host-images.ts');
  const list = new HostList(context.home);
  context.progress.begin(`Connecting to ${name}`);
  let isReached = false;
  try {
    const survey = await surveyHost(hostOptions(context, name), context.interrupted);
    isReached = true;
    requireDocker(name, survey['docker'], survey['user']);
    const imageTool = [process.execPath, join(dirname(import.meta.filename), 'setup/images.cjs')];
    const images = await ensureHostImages({ ...hostOptions(context, name), imageTool }, context.interrupted);
    list.setProblem(name, null);
    return images;
  } catch (error) {
    const failure = HoldfastError.from(error);
    if (failure.code !== 'cancelled' && (isReached || isRefusedByMachine(failure)))
      list.setProblem(name, failure.why ?? failure.message);
    throw failure;
  } finally {
    context.progress.end();
  }
}

function requireDocker(host: string, docker: unknown, user: unknown): void {
  if (docker !== 'absent' && docker !== 'denied') return;
  // It becomes a part of a command that a person copies.
  const name = typeof user === 'string' ? (user.split(' ')[0] ?? '') : '';
  const who = /^[a-z_][a-z0-9_-]{0,31}$/i.test(name) ? name : 'USER';
  throw new HoldfastError('engine_unavailable', `${host} has no Docker that this user can use`, {
    why: docker === 'absent' ? 'no Docker engine runs there' : `${who} may not use its socket`,
    next:
      docker === 'absent'
        ? 'install Docker there, or start it'
        : `add the user to the group docker there (\`sudo usermod -aG docker ${who}\`), or set up rootless Docker`,
  });
}

/** The program is there, its images are not. */
function updatedWithoutImages(updated: string, error: unknown): HoldfastError {
  const { code, message, why, next } = HoldfastError.from(error);
  return new HoldfastError(code, `${updated}, but its images could not be installed: ${message}`, {
    why,
    next,
    cause: error,
  });
}

function registerList(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'list',
    description: 'list the machines',
    withoutHost: true,
  });
  registry.setAction(command, async (context) => {
    const hosts = new HostList(context.home).all();
    if (context.json) await context.printJson({ hosts });
    else if (hosts.length === 0) {
      await context.print('There are no other machines yet.');
      await context.printHint('Add one: holdfast host add NAME ssh://USER@HOST');
    } else {
      const columns = [
        { title: 'NAME', value: (host: Host) => host.name, paint: () => context.style.bold },
        { title: 'DESTINATION', value: (host: Host) => host.destination },
        ...(hosts.some(({ problem }) => problem !== undefined)
          ? [{ title: 'LACKS', value: ({ problem }: Host) => sanitizeLine(problem ?? '') }]
          : []),
      ];
      await context.print(
        ...formatTable<Host>(hosts, columns, { width: context.stdout.columns, header: context.style.dim }),
      );
    }
    return undefined;
  });
}

function registerRemove(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'rm <name>',
    operands: ['host'],
    description: 'remove a machine from the list; everything on it stays, and its sessions continue',
    withoutHost: true,
  });
  registry.setAction(command, async (context, _options, name: string) => {
    const host = new HostList(context.home).remove(name);
    const { disconnectHost } = await import('../../hosts/connector/connect-host.ts');
    await disconnectHost(context.home, name);
    if (context.json) await context.printJson({ removed: host });
    else await context.print(`${name} was removed. Its sessions stay on ${sanitizeLine(host.destination)}`);
    return undefined;
  });
}

function registerDoctor(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'doctor <name>',
    operands: ['host'],
    description: 'check a machine: the login, its system, Docker, and Holdfast there',
    withoutHost: true,
  });
  registry.setAction(command, async (context, _options, name: string) => {
    const { surveyHost } = await import('../../hosts/connector/connect-host.ts');
    const { dialHost, hostOptions } = await import('../dial-host.ts');
    const { checkLines } = await import('./maintenance.ts');
    const { surveyChecks } = await import('../host-checks.ts');
    context.progress.begin(`Connecting to ${name}`);
    const survey = await surveyHost(hostOptions(context, name), context.interrupted);
    const peer = await dialHost(context, name, 'auto');
    const { checks } = await peer.call('supervisor/doctor', {}, { signal: context.interrupted });
    peer.close();
    context.progress.end();
    const all = [...surveyChecks(survey), ...checks];
    if (context.json) await context.printJson({ host: name, checks: all });
    else await context.print(...checkLines(context, all, name));
    return all.some((check) => check.status === 'problem') ? EXIT.failed : undefined;
  });
}

function registerUpdate(registry: Registry, group: Command): void {
  const command = registry.command(group, {
    usage: 'update <name>',
    operands: ['host'],
    description: 'install this version of Holdfast and its images on a machine; its turns continue meanwhile',
    withoutHost: true,
  });
  registry.setAction(command, async (context, _options, name: string) => {
    const { disconnectHost } = await import('../../hosts/connector/connect-host.ts');
    const { dialHost } = await import('../dial-host.ts');
    // The connector may be of an earlier build, which brings its own program.
    await disconnectHost(context.home, name);
    context.progress.begin(`Connecting to ${name}`);
    const peer = await dialHost(context, name, 'auto');
    const { version, build } = await peer.call('supervisor/status', {});
    peer.close();
    context.progress.end();
    // The supervisor there is replaced also where its engine is down.
    const images = await prepareHost(context, name).catch((error: unknown) => {
      throw updatedWithoutImages(`${name} runs Holdfast ${version} (build ${build})`, error);
    });
    if (context.json) await context.printJson({ host: name, version, build, images });
    else await context.print(`${name} runs Holdfast ${version} (build ${build})`);
    return undefined;
  });
}
