import { resolve } from 'node:path';
import { CommanderError } from 'commander';
import type { Command } from 'commander';
import { homeFromEnvironment } from '../protocol/home.ts';
import { Context } from './context.ts';
import { EXIT, describeFailure, colorFailure, UsageError } from './failure.ts';
import type { CliIo } from './io.ts';
import { ReconnectingClient } from '../protocol/client/reconnecting-client.ts';
import { BrokenPipeError } from './output.ts';
import { buildProgram } from './program.ts';
import type { CommonOptions } from './registry.ts';
import { createStyle } from './render/style.ts';
import { sanitizeLine } from './render/text.ts';

export type { CliIo, CliSignal } from './io.ts';
export { processIo } from './io.ts';

/**
 * Runs one command line (without the program's own name) and resolves with its exit code: 0 success, 1 failure,
 * 2 usage error, 130 cancelled; `exec` returns the exit code of its command. All output has been flushed by then.
 * The caller should exit the process at once, because standard input may still be open.
 */
export async function runCli(argv: readonly string[], io: CliIo): Promise<number> {
  let exitCode: number = EXIT.done;
  const program = buildProgram(io, async (options, act) => {
    exitCode = await runAction(io, options, act);
  });
  try {
    await program.parseAsync([...argv], { from: 'user' });
    return exitCode;
  } catch (error) {
    return report(
      io,
      error instanceof CommanderError ? (misplaced(error, argv) ?? usageOf(error, program)) : error,
    );
  }
}

async function runAction(
  io: CliIo,
  options: CommonOptions,
  act: (context: Context) => Promise<number | undefined>,
): Promise<number> {
  const home = options.home === undefined ? homeFromEnvironment(io.env) : resolve(io.cwd, options.home);
  const host = options.host === undefined || options.host === 'local' ? null : options.host;
  const context: Context = new Context({
    io,
    home,
    host,
    json: options.json === true,
    connect: (start) =>
      new ReconnectingClient({
        connect: async (mode) => {
          if (host === null) return (await import('./dial.ts')).dialSupervisor({ home, io, start: mode });
          return (await import('./dial-host.ts')).dialHost(context, host, mode);
        },
        start,
        onWaiting: () =>
          void context
            .printHint('The supervisor was stopped; waiting for it to start again')
            .catch(() => undefined),
      }),
  });
  const left = context.exitRequested.then((code) => ({ code, left: true }));
  const readerClosed = new Promise<never>((_resolve, reject) => context.stdout.onFailure(reject));
  // The race below handles the rejection. This handler only prevents an unhandled one.
  readerClosed.catch(() => undefined);
  let flush = true;
  try {
    const done = act(context).then(async (code) => {
      await context.endPager();
      return { code: code ?? EXIT.done, left: false };
    });
    const outcome = await Promise.race([done, left, readerClosed]);
    flush = !outcome.left;
    return outcome.code;
  } catch (error) {
    // The person reads on, whatever has failed.
    await context.endPager();
    if (error instanceof BrokenPipeError) return EXIT.done;
    context.progress.end();
    return await report(io, context.interrupted.aborted ? new Interrupted() : error);
  } finally {
    await context.close(flush);
  }
}

/** The user pressed ^C. */
class Interrupted extends Error {}

async function report(io: CliIo, error: unknown): Promise<number> {
  if (error instanceof CommanderError) return error.exitCode;
  const failure =
    error instanceof Interrupted
      ? { line: 'error cancelled: interrupted', exitCode: EXIT.cancelled }
      : describeFailure(error);
  const style = createStyle(io.stderr.isTTY === true, io.env);
  await new Promise<void>((done) => {
    io.stderr.write(`${colorFailure(failure.line, style)}\n`, () => done());
  });
  return failure.exitCode;
}

/** People expect some options of every command to work before it as well. */
function misplaced(
  error: CommanderError,
  [first = '', value = '']: readonly string[],
): UsageError | undefined {
  const option = ['--host', '--home', '--json'].find(
    (name) => first === name || first.startsWith(`${name}=`),
  );
  if (error.code !== 'commander.unknownOption' || option === undefined) return undefined;
  const given = first === '--json' || first !== option ? first : `${first} ${value}`;
  return new UsageError(`${option} stands behind the command, as in \`holdfast session list ${given}\``);
}

/** Converts an error of commander into a UsageError. Help and version are not errors. */
function usageOf(error: CommanderError, program: Command): CommanderError | UsageError {
  if (error.exitCode === 0) return error;
  // The user typed a group without a subcommand, or nothing: commander has printed the help.
  if (error.code === 'commander.help') return new CommanderError(EXIT.usage, error.code, error.message);
  const [complaint = '', ...more] = error.message.replace(/^error: /, '').split('\n');
  const hint = more.join(' ').replace(/^\(Did you mean (one of )?(.*)\?\)$/, 'did you mean $2?');
  const where =
    error.code === 'commander.unknownCommand' || hint === '' ? `see \`${program.name()} --help\`` : '';
  return new UsageError(
    sanitizeLine([complaint.replace(/\.$/, ''), hint, where].filter((part) => part !== '').join('; ')),
  );
}
