import type { Command } from 'commander';
import { HostList, LOCAL } from '../../hosts/base/host-list.ts';
import { ReconnectingClient } from '../../protocol/client/reconnecting-client.ts';
import type { Moved, MoveHost } from '../../protocol/client/move-session.ts';
import { ProfileNameSchema } from '../../protocol/profile.ts';
import type { Context } from '../context.ts';
import { UsageError } from '../failure.ts';
import type { Registry } from '../registry.ts';
import { quoteForShell, sanitizeLine } from '../render/text.ts';
import { commandOn } from '../suggested-commands.ts';

interface MoveOptions {
  to?: string;
  name?: string;
  profile?: string;
  wait?: boolean;
  abort?: boolean;
}

export function registerSessionMove(registry: Registry, group: Command): void {
  const command = registry
    .command(group, {
      usage: 'move <session>',
      description:
        'move a session to another host: its files, history, memory and review; never secrets. Repeat it after an interruption',
      operands: ['session'],
      examples: [
        'holdfast session move reviewer/default --to far                   from here to far',
        'holdfast session move reviewer/default --host far --to local   and back',
        'holdfast session move reviewer/default --abort                    keep it here, as long as the source has not released it',
      ],
    })
    .option('--to <host>', 'where to (see `holdfast host list`); `local` is this machine')
    .option('--name <name>', 'a new name for the session')
    .option('--profile <profile>', 'the profile there, if it has another name; it has to be deployed there')
    .option('--wait', 'wait until no turn, command or terminal runs in it')
    .option('--abort', 'keep the session here, and delete the copy on the other host');
  registry.setAction(command, async (context, options: MoveOptions, session: string) => {
    if ((options.to === undefined) === (options.abort !== true))
      throw new UsageError('name the host with --to, or cancel the move with --abort');
    if (options.abort === true) {
      await abort(context, session);
      return undefined;
    }
    const target = placeOf(options.to ?? '');
    if (target === context.host) throw new UsageError('--to names the host that the session is on');
    if (options.profile !== undefined && !ProfileNameSchema.safeParse(options.profile).success)
      throw new UsageError('--profile takes the name of a profile');
    // The profile decides what the session may reach there: no other machine chooses it.
    if (context.host !== null && options.profile === undefined && session.indexOf('/') < 1)
      throw new UsageError(
        'name the profile of a session on another machine: PROFILE/NAME, or the one that it gets with --profile',
      );
    if (target !== null) new HostList(context.home).get(target);
    await move(context, options, session, target);
    return undefined;
  });
}

async function move(
  context: Context,
  options: MoveOptions,
  session: string,
  target: string | null,
): Promise<void> {
  const { moveSession } = await import('../../protocol/client/move-session.ts');
  const to = hostOf(context, target);
  context.progress.begin(`Moving to ${to.name}`);
  let lastWait = '';
  let moved: Moved;
  try {
    moved = await moveSession({
      source: hostOf(context, context.host),
      target: to,
      session,
      profile: options.profile,
      name: options.name,
      wait: options.wait,
      signal: context.interrupted,
      onProgress: (progress) => {
        context.progress.update(progress);
        if (!progress.stage.startsWith('Waiting: ') || progress.stage === lastWait) return;
        lastWait = progress.stage;
        void context.printHint(sanitizeLine(progress.stage)).catch(() => undefined);
      },
    });
  } catch (error) {
    context.progress.end();
    if (context.interrupted.aborted)
      await context.printNote(
        `The move can go on: repeat the command. To keep the session: ${context.command(`session move ${quoteForShell(session)} --abort`)}`,
      );
    throw error;
  } finally {
    context.progress.end();
  }
  await report(context, moved, to, target);
}

async function report(
  context: Context,
  { departure, arrival, lacks, leftover }: Moved,
  to: MoveHost,
  target: string | null,
): Promise<void> {
  const { sessionId, name, receipt } = departure;
  const { session } = arrival;
  if (context.json) {
    await context.printJson({
      sessionId,
      to: to.name,
      session,
      lacks,
      receipt,
      leftover: leftover?.sentence ?? null,
    });
    return;
  }
  if (session === null) {
    await context.print(`${sanitizeLine(name)} was moved to ${to.name} and has been deleted there.`);
    return;
  }
  await context.print(
    `${context.style.bold(sanitizeLine(`${session.profile}/${session.name}`))} has moved to ${to.name}, where it is ${session.id}`,
  );
  if (lacks.length > 0)
    await context.printNote(
      `Secrets do not travel. ${to.name} has none named ${lacks.map(sanitizeLine).join(', ')}: set them there with \`${there(context, target, 'secret set')}\``,
    );
  if (leftover !== null) await context.printNote(sanitizeLine(leftover.sentence));
  await context.printHint('Sign-in files and network rules of the session stayed behind as well.');
  await context.printHint(
    `Go on with it: ${there(context, target, `prompt ${quoteForShell(`${session.profile}/${session.name}`)}`)} '…'`,
  );
}

async function abort(context: Context, session: string): Promise<void> {
  const { abortMove } = await import('../../protocol/client/move-session.ts');
  context.progress.begin('Giving the move up');
  try {
    const { to, discarded, failure } = await abortMove(hostOf(context, context.host), session, (home) => {
      const known = new HostList(context.home).all().find((host) => host.homeId === home);
      if (known !== undefined) return hostOf(context, known.name);
      return context.host === null ? null : hostOf(context, null);
    });
    context.progress.end();
    if (context.json) await context.printJson({ session, to, discarded });
    else {
      await context.print(`${sanitizeLine(session)} stays where it is.`);
      if (failure !== null)
        await context.printNote(
          sanitizeLine(
            `${to} has not deleted what had arrived there: ${failure.sentence}. To delete it, repeat this command`,
          ),
        );
      else if (discarded === null)
        await context.printNote(
          `${sanitizeLine(to)} could not be asked: what had arrived there cannot be used, and goes when you repeat this command`,
        );
    }
  } finally {
    context.progress.end();
  }
}

/** A command for the target of a move: its machine is named where the command of the move named another one. */
function there(context: Context, target: string | null, words: string): string {
  return commandOn(target ?? (context.host === null ? null : LOCAL), words);
}

/** The host of a name; null: this machine. */
function placeOf(name: string): string | null {
  return name === LOCAL ? null : name;
}

function hostOf(context: Context, host: string | null): MoveHost {
  const name = host ?? LOCAL;
  if (host === context.host) return { client: context.client(), name };
  const client = new ReconnectingClient({
    connect: async (mode) => {
      const { home, io } = context;
      if (host === null) return (await import('../dial.ts')).dialSupervisor({ home, io, start: mode });
      return (await import('../dial-host.ts')).dialHost(context, host, mode);
    },
    start: 'auto',
  });
  context.onClose(() => client.close());
  return { client, name };
}
