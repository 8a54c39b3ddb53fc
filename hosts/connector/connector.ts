import { createServer } from 'node:net';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { DatabaseSync } from 'node:sqlite';
import { listenAt, removeStaleSocket } from '../../protocol/client/socket.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { joinStreams } from '../base/join-streams.ts';
import { DECLINED, NOBODY } from '../ssh/ssh-failure.ts';
import type { ConnectorFiles } from './connector-files.ts';
import { AnswerSchema, MessageReader, WantSchema, errorReply, writeMessage } from './messages.ts';
import type { Want } from './messages.ts';
import { Questions, isAskedByHost } from './questions.ts';
import type { SshConnection } from './ssh-connection.ts';

export interface ConnectorOptions {
  readonly files: ConnectorFiles;
  /** The attempt ends when the signal aborts. */
  readonly connect: (onStage: (stage: string) => void, signal: AbortSignal) => Promise<SshConnection>;
  /** How long it stays after its last client has left, ms. */
  readonly idleMs: number;
}

/**
 * The process that owns the ssh connection to a host. All clients of this machine share it through a socket that only
 * their user can open. It ends with the connection, and when nobody has used it for a while.
 */
export class Connector {
  readonly #options: ConnectorOptions;
  readonly #questions = new Questions();
  readonly #stages = new Set<(stage: string) => void>();
  readonly #clients = new Set<Socket>();
  /** Those who wait for the connection. */
  readonly #waiting = new Set<Socket>();
  readonly #attempt = new AbortController();
  readonly #done = Promise.withResolvers<undefined>();
  #connection: Promise<SshConnection> | undefined;
  #isConnected = false;
  #stage = 'Connecting';
  #idle: NodeJS.Timeout | undefined;

  constructor(options: ConnectorOptions) {
    this.#options = options;
  }

  /** Resolves when it is over. False: another connector of this host runs. */
  async run(): Promise<boolean> {
    const { files, idleMs } = this.#options;
    const lock = takeLock(files.lock);
    if (lock === undefined) return false;
    removeStaleSocket(files.socket);
    const server = createServer({ allowHalfOpen: true }, (socket) => void this.#serve(socket));
    const stop = await listenAt(server, files.socket);
    this.#idle = setTimeout(() => this.#done.resolve(undefined), idleMs);
    try {
      await this.#done.promise;
    } finally {
      clearTimeout(this.#idle);
      // Nobody new; those who wait get their error first.
      const stopped = stop();
      await new Promise((resolve) => setTimeout(resolve, 50));
      for (const client of this.#clients) client.destroy();
      await stopped;
      this.#attempt.abort();
      // The ssh of an attempt is killed by now; what it was doing besides does not keep the lock.
      const closing = this.#connection?.then(
        (connection) => connection.close(),
        () => undefined,
      );
      await Promise.race([closing, sleep(LEAVING_MS / 2, undefined, { ref: false })]);
      lock.close();
    }
    return true;
  }

  async #serve(socket: Socket): Promise<void> {
    this.#clients.add(socket);
    clearTimeout(this.#idle);
    socket.on('error', () => socket.destroy());
    socket.once('close', () => {
      this.#clients.delete(socket);
      this.#leave(socket);
      if (this.#clients.size > 0) return;
      clearTimeout(this.#idle);
      this.#idle = setTimeout(() => this.#done.resolve(undefined), this.#options.idleMs);
    });
    const reader = new MessageReader(socket);
    try {
      const want = await reader.next(WantSchema);
      if (want === null) return;
      await this.#answer(want, socket, reader);
    } catch (error) {
      writeMessage(socket, errorReply(error));
      socket.end();
    }
  }

  async #answer(want: Want, socket: Socket, reader: MessageReader): Promise<void> {
    switch (want.want) {
      case 'ask': {
        const answer = want.isNotice ? '' : await this.#questions.ask(want.text);
        // ssh would send an empty answer, three times: machines count those as failed logins.
        if (typeof answer !== 'string' && isAskedByHost(want.text))
          this.#attempt.abort(answer === null ? DECLINED : NOBODY);
        writeMessage(socket, { text: answer ?? null });
        socket.end();
        return;
      }
      case 'stop':
        socket.end();
        this.#done.resolve(undefined);
        return;
      case 'survey': {
        const { survey } = await this.#connected(want.canAsk, socket, reader);
        writeMessage(socket, { survey });
        socket.end();
        return;
      }
      case 'stream': {
        const { streams } = await this.#connected(want.canAsk, socket, reader);
        const stream = await streams.open(want.path, { start: want.start });
        if (stream === undefined) {
          writeMessage(socket, { none: true });
          socket.end();
          return;
        }
        reader.release();
        writeMessage(socket, { ready: true });
        await joinStreams(socket, stream);
      }
    }
  }

  /** The connection. Meanwhile the client sees the progress, and is asked what ssh asks. */
  async #connected(canAsk: boolean, socket: Socket, reader: MessageReader): Promise<SshConnection> {
    const show = (stage: string): void => writeMessage(socket, { stage });
    let id = 0;
    const removeAsker = canAsk
      ? this.#questions.add(async (question) => {
          id += 1;
          writeMessage(socket, { question: { id, ...question } });
          const message = await reader.next(AnswerSchema);
          if (message === null) return undefined;
          return message.answer.id === id ? message.answer.text : null;
        })
      : () => undefined;
    this.#stages.add(show);
    this.#waiting.add(socket);
    // Nobody reads meanwhile, and a stream says that it has ended only when it is read.
    const look = (): void => void socket.read(0);
    const leave = (): void => this.#leave(socket);
    socket.on('readable', look).once('end', leave);
    try {
      if (this.#connection !== undefined) show(this.#stage);
      return await this.#connect();
    } finally {
      socket.off('readable', look).off('end', leave);
      this.#waiting.delete(socket);
      this.#stages.delete(show);
      removeAsker();
    }
  }

  /** An attempt ends when nobody waits for it any more: its ssh may ask for a password, or never answer. */
  #leave(socket: Socket): void {
    const isLast = this.#waiting.delete(socket) && this.#waiting.size === 0;
    if (isLast && !this.#isConnected) this.#done.resolve(undefined);
  }

  #connect(): Promise<SshConnection> {
    if (this.#connection !== undefined) return this.#connection;
    const connection = this.#options.connect((stage) => {
      this.#stage = stage;
      for (const show of this.#stages) show(stage);
    }, this.#attempt.signal);
    this.#connection = connection;
    connection.then(
      ({ closed, streams }) => {
        this.#isConnected = true;
        void closed.then(async () => {
          // Clients that try again at once learn why, and do not log in for another flood.
          if (streams.flood !== undefined) await sleep(FLOODED_MS, undefined, { ref: false });
          this.#done.resolve(undefined);
        });
      },
      // The next command tries again, with a new connector.
      () => this.#done.resolve(undefined),
    );
    return connection;
  }
}

/** How long a connector answers with the reason after its host has flooded it. */
const FLOODED_MS = 10_000;
/** How long a connector that is about to leave may take. */
const LEAVING_MS = 3000;

/** Undefined: another process has it. */
function takeLock(file: string): DatabaseSync | undefined {
  const lock = new DatabaseSync(file, { timeout: LEAVING_MS });
  try {
    lock.exec('BEGIN EXCLUSIVE');
    return lock;
  } catch (cause) {
    lock.close();
    if (cause instanceof Error && /locked|busy/i.test(cause.message)) return undefined;
    throw new HoldfastError('internal', `${file} cannot be locked`, { cause });
  }
}
