import { spawn } from 'node:child_process';
import { writeFileSync, renameSync } from 'node:fs';
import { HoldfastError } from '../../protocol/errors.ts';
import { StreamClient } from '../base/streams.ts';
import { StreamPair } from '../base/stream-pair.ts';
import { parseDestination } from '../base/destination.ts';
import { nodeArchive, programArchive } from '../far/archives.ts';
import { FAR_COMMAND } from '../far/far-script.ts';
import { prepare } from '../far/preparation.ts';
import type { Survey } from '../far/survey.ts';
import type { Host } from '../base/host-list.ts';
import { sshArguments, sshEnvironment } from '../ssh/ssh-command.ts';
import { sshFailure, unansweredFailure } from '../ssh/ssh-failure.ts';

const MAX_ERROR_CHARACTERS = 16 * 1024;

export interface SshConnectionOptions {
  readonly host: Host;
  /** Where the bundle of this program is, and its build. */
  readonly program: string;
  readonly build: string;
  readonly nodeVersion: string;
  /** Where fetched packages are kept. */
  readonly cache: string;
  /** Path of the script that ssh runs for questions; it is written here. */
  readonly askpass: string;
  /** The program that the script runs, with its arguments; the socket that it asks is in its environment. */
  readonly askCommand: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
  readonly onStage: (stage: string) => void;
  /** Kills ssh, also once it is connected. Its reason may be DECLINED or NOBODY. */
  readonly signal: AbortSignal;
}

export interface SshConnection {
  readonly survey: Survey;
  readonly streams: StreamClient;
  readonly closed: Promise<void>;
  close(): void;
}

/** Logs in, brings the program, and starts it. Errors: why that is not possible. */
export async function connectBySsh(options: SshConnectionOptions): Promise<SshConnection> {
  const { host, program } = options;
  writeAskpass(options.askpass, options.askCommand);
  const ssh = options.environment['HOLDFAST_SSH'] ?? 'ssh';
  const child = spawn(ssh, sshArguments(parseDestination(host.destination), FAR_COMMAND), {
    cwd: '/',
    stdio: ['pipe', 'pipe', 'pipe'],
    env: sshEnvironment(options.environment, { program: options.askpass, environment: {} }),
  });
  let errorOutput = '';
  child.stderr
    .setEncoding('utf8')
    .on('data', (text: string) => (errorOutput = (errorOutput + text).slice(-MAX_ERROR_CHARACTERS)));
  let exit = 'ended';
  const ended = new Promise<Error | undefined>((resolve) => {
    child.once('error', resolve);
    child.once('close', (code, signal) => {
      exit = signal === null ? `ended with code ${String(code)}` : `was killed by ${signal}`;
      resolve(undefined);
    });
  });
  child.stdin.on('error', () => undefined);
  const close = (): void => void child.kill('SIGTERM');
  options.signal.addEventListener('abort', close, { once: true });
  if (options.signal.aborted) close();
  try {
    const prepared = await prepare({
      host,
      output: child.stdout,
      input: child.stdin,
      build: options.build,
      nodeVersion: options.nodeVersion,
      program: () => programArchive(program),
      node: (architecture) =>
        nodeArchive({ program, cache: options.cache, version: options.nodeVersion }, architecture),
      onStage: options.onStage,
    });
    if ('ended' in prepared) {
      const failure = await ended;
      if (failure !== undefined) throw noSsh(ssh, failure);
      const unanswered = unansweredFailure(host, options.signal);
      if (unanswered !== undefined) throw unanswered;
      if (!prepared.heard && prepared.skipped === '') throw sshFailure(host, errorOutput, exit);
      if (prepared.heard)
        throw new HoldfastError('connection_closed', `The connection to ${host.name} ended`, {
          why: `ssh ${exit} while our script ran there`,
          next: 'try again',
        });
      throw new HoldfastError('not_supported', `${host.name} did not run our script`, {
        why: `it ran something else, perhaps a forced command or a login shell that exits: ${firstLine(prepared.skipped)}`,
        next: `\`ssh ${host.name} true\` must work and print nothing that ends the session`,
      });
    }
    const streams = new StreamClient(new StreamPair(child.stdout, child.stdin), host.name);
    const closed = Promise.race([ended.then(() => undefined), streams.closed]);
    void closed.then(close);
    return {
      survey: prepared.survey,
      streams,
      closed,
      close: () => {
        streams.close();
        close();
      },
    };
  } catch (error) {
    close();
    throw error;
  }
}

function firstLine(text: string): string {
  return (text.split('\n').find((line) => line.trim() !== '') ?? 'it printed nothing').slice(0, 200);
}

function noSsh(program: string, cause: Error): HoldfastError {
  return new HoldfastError('not_found', `${program} cannot be run`, {
    why: cause.message,
    next: 'install the OpenSSH client',
    cause,
  });
}

/** A script, because ssh runs one program without arguments of ours. */
function writeAskpass(path: string, command: readonly string[]): void {
  const words = command.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
  const temporary = `${path}.${String(process.pid)}`;
  writeFileSync(temporary, `#!/bin/sh\nexec ${words} "$1"\n`, { mode: 0o700 });
  renameSync(temporary, path);
}
