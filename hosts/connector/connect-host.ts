import { spawn } from 'node:child_process';
import type { Duplex } from 'node:stream';
import type { SupervisorReach } from '../../protocol/client/connect.ts';
import type { StartMode } from '../../protocol/client/reconnecting-client.ts';
import { dialAt } from '../../protocol/client/socket.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { FarPath } from '../base/streams.ts';
import { connectorBuilds, connectorFiles } from './connector-files.ts';
import { MessageReader, ReplySchema, errorOf, writeMessage } from './messages.ts';

/** How a person sees that a connection is made, and answers the questions of ssh. */
export interface ConnectionUi {
  onStage(stage: string): void;
  /** Null: the person does not answer. Undefined: nobody can be asked. */
  readonly ask:
    ((question: { readonly text: string; readonly isSecret: boolean }) => Promise<string | null>) | undefined;
}

export interface ConnectHostOptions {
  /** The home of this machine, and the name of the host in its list. */
  readonly home: string;
  readonly host: string;
  /** This program: its connectors bring the same build. */
  readonly build: string;
  /** Starts a connector; the name of the host and the home follow. */
  readonly command: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
  readonly ui: ConnectionUi;
  /** False: only a login that another program has made is used, and none is made. */
  readonly logsIn?: boolean;
}

const POLL_MS = 20;
const START_MS = 20_000;
const ATTEMPTS = 4;
const RETRY_MS = 100;

/** The supervisor of another machine, through the connector of that host. The connector is started if need be. */
export class HostReach implements SupervisorReach {
  readonly #options: ConnectHostOptions;
  readonly #start: StartMode;

  constructor(options: ConnectHostOptions, start: StartMode) {
    this.#options = options;
    this.#start = start;
  }

  get name(): string {
    return `the supervisor on ${this.#options.host}`;
  }

  get update(): string {
    return `update it with \`holdfast host update ${this.#options.host}\``;
  }

  get whenSilent(): string {
    return `try again, or see \`holdfast host doctor ${this.#options.host}\``;
  }

  /** A connection that breaks while it is made is made again. Errors: why the host cannot be reached, `cancelled`. */
  async dial(signal: AbortSignal | undefined): Promise<Duplex | undefined> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await openHostStream(this.#options, '/supervisor', { start: this.#start, signal });
      } catch (error) {
        const isBroken = error instanceof HoldfastError && error.code === 'connection_closed';
        if (!isBroken || attempt === ATTEMPTS || signal?.aborted === true) throw error;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS * attempt));
      }
    }
  }

  /** The program on the other machine starts it. */
  ensureStarted(): void {
    // Nothing to do here: `dial` has asked for it.
  }

  explainFailure(): HoldfastError | undefined {
    return undefined;
  }

  notRunning(): HoldfastError {
    return new HoldfastError('not_found', `No supervisor is running on ${this.#options.host}`, {
      next: `start one with \`holdfast supervisor start --host ${this.#options.host}\``,
    });
  }

  release(): void {
    // The connector outlives its clients.
  }
}

/** Undefined: nothing answers there. Errors: why the host cannot be reached, `cancelled`. */
export async function openHostStream(
  options: ConnectHostOptions,
  path: FarPath,
  { start, signal }: { readonly start: StartMode; readonly signal?: AbortSignal | undefined },
): Promise<Duplex | undefined> {
  const canAsk = options.ui.ask !== undefined;
  const socket = await dialConnector(options, signal);
  const reply = await converse(socket, { want: 'stream', path, start, canAsk }, options, signal);
  if ('ready' in reply) return socket;
  socket.destroy();
  if ('none' in reply) return undefined;
  throw unexpected();
}

/** What is known about the machine, after connecting. */
export async function surveyHost(
  options: ConnectHostOptions,
  signal?: AbortSignal,
): Promise<Readonly<Record<string, unknown>>> {
  const socket = await dialConnector(options, signal);
  const want = { want: 'survey', canAsk: options.ui.ask !== undefined };
  const reply = await converse(socket, want, options, signal);
  socket.destroy();
  if ('survey' in reply) return reply.survey;
  throw unexpected();
}

/** Ends the connections of a host. False: there was none. */
export async function disconnectHost(home: string, host: string): Promise<boolean> {
  let isStopped = false;
  for (const build of connectorBuilds(home, host)) {
    const socket = await dialIfThere(home, host, build);
    if (socket === undefined) continue;
    writeMessage(socket, { want: 'stop' });
    socket.resume();
    await new Promise((resolve) => socket.once('close', resolve));
    isStopped = true;
  }
  return isStopped;
}

/** Says what the client wants, shows the progress and asks the person, until there is an answer. */
async function converse(
  socket: Duplex,
  want: object,
  { host, ui }: ConnectHostOptions,
  signal: AbortSignal | undefined,
) {
  const onAbort = (): void => void socket.destroy();
  signal?.addEventListener('abort', onAbort, { once: true });
  const reader = new MessageReader(socket);
  try {
    writeMessage(socket, want);
    for (;;) {
      const reply = await reader.next(ReplySchema);
      if (reply === null) {
        if (signal?.aborted === true)
          throw new HoldfastError('cancelled', `Connecting to ${host} was cancelled`);
        throw new HoldfastError('connection_closed', `The connection to ${host} ended`, {
          next: 'try again',
        });
      }
      if ('stage' in reply) ui.onStage(reply.stage);
      else if ('question' in reply) {
        const { id, text, isSecret } = reply.question;
        const answer = (await ui.ask?.({ text, isSecret })) ?? null;
        writeMessage(socket, { answer: { id, text: answer } });
      } else if ('error' in reply) {
        socket.destroy();
        throw errorOf(reply.error);
      } else return reply;
    }
  } finally {
    reader.release();
    signal?.removeEventListener('abort', onAbort);
  }
}

async function dialConnector(options: ConnectHostOptions, signal: AbortSignal | undefined): Promise<Duplex> {
  const { home, host, build, command, environment } = options;
  const until = Date.now() + START_MS;
  let started = 0;
  for (;;) {
    const socket = await dialIfThere(home, host, build);
    if (socket !== undefined) return socket;
    if (signal?.aborted === true) throw new HoldfastError('cancelled', `Connecting to ${host} was cancelled`);
    if (options.logsIn === false) throw new HoldfastError('not_found', `There is no connection to ${host}`);
    if (Date.now() > until)
      throw new HoldfastError('timeout', `The connector of ${host} did not start`, {
        next: 'try again, or see `holdfast host doctor`',
      });
    // Again from time to time: the one before may have been about to leave.
    if (Date.now() - started > 2000) {
      startConnector([...command, host, home], environment);
      started = Date.now();
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

async function dialIfThere(home: string, host: string, build: string): Promise<Duplex | undefined> {
  try {
    const socket = await dialAt(connectorFiles(home, host, build).socket);
    // Whoever reads it sees its end; nobody may be listening between two readers.
    socket.on('error', () => socket.destroy());
    return socket;
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'ENOENT' || code === 'ECONNREFUSED' || code === 'ECONNRESET') return undefined;
    throw error;
  }
}

function startConnector([program = '', ...args]: readonly string[], environment: NodeJS.ProcessEnv): void {
  const child = spawn(program, args, { cwd: '/', detached: true, stdio: 'ignore', env: environment });
  child.on('error', () => undefined);
  child.unref();
}

function unexpected(): HoldfastError {
  return new HoldfastError('protocol_error', 'The connector gave an answer that cannot be read');
}
