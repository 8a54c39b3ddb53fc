import { setTimeout as sleep } from 'node:timers/promises';
import { PassThrough } from 'node:stream';
import type { Socket } from 'node:net';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { EngineExec, ExecSpec } from '../port.ts';
import type { DockerApi } from './api.ts';
import type { Containers, EngineTimeouts } from './containers.ts';
import { EngineRefusal, isRefusal } from './errors.ts';
import { demultiplex } from './multiplexed-stream.ts';
import { CreatedReply, ExecReply, parseReply } from './replies.ts';

const RESIZE_TRIES = 20;
const RESIZE_PAUSE_MS = 50;
const EXIT_TRIES = 100;
const EXIT_PAUSE_MS = 20;
const SETTLE_TRIES = 20;
/** Exit codes of a process that was killed or could not start: by itself, or because its container ended. */
const AMBIGUOUS: readonly number[] = [126, 137];

export interface RawExec {
  readonly id: string;
  readonly socket: Socket;
}

interface ExecTerminal {
  readonly sessionId: string;
  readonly containerId: string;
  readonly id: string;
  readonly ended: () => boolean;
}

/** Processes beside the main process of a container. */
export class Execs {
  readonly #api: () => Promise<DockerApi>;
  readonly #containers: Containers;
  readonly #timeouts: EngineTimeouts;
  /**
   * Pending resizes of terminals, by session: a paused container refuses a resize, which is repeated after the
   * unpause.
   */
  readonly #pendingResizes = new Map<string, Set<() => Promise<void>>>();

  constructor(api: () => Promise<DockerApi>, containers: Containers, timeouts: EngineTimeouts) {
    this.#api = api;
    this.#containers = containers;
    this.#timeouts = timeouts;
  }

  /** Starts a command; the caller owns the stream. Errors: `sandbox_lost`, `invalid_state` (paused). */
  async start(containerId: string, body: object, tty: boolean, what: string): Promise<RawExec> {
    const api = await this.#api();
    try {
      const path = `/containers/${containerId}/exec`;
      const created = await api.json({ what, method: 'POST', path, body, timeoutMs: this.#timeouts.queryMs });
      const { Id } = parseReply(CreatedReply, what, created);
      const socket = await api.hijack({
        what,
        method: 'POST',
        path: `/exec/${Id}/start`,
        body: { Detach: false, Tty: tty },
        timeoutMs: this.#timeouts.operationMs,
      });
      return { id: Id, socket };
    } catch (error) {
      throw await this.#explained(error, containerId, what);
    }
  }

  /** Discards the output until the process ends. Returns its exit code, or null if its container ended first. */
  async waitForExit(containerId: string, { id, socket }: RawExec): Promise<number | null> {
    const closed = new Promise((resolve) => socket.once('close', resolve));
    // A broken connection closes too; the engine knows how the process ended.
    socket.on('error', () => undefined);
    socket.resume();
    await closed;
    return this.#exitCode(containerId, id);
  }

  async run(sessionId: string, containerId: string, spec: ExecSpec): Promise<EngineExec> {
    const what = `Cannot run ${spec.command[0] ?? 'a command'} in ${sessionId}`;
    const tty = spec.tty !== null;
    const environment = { ...spec.env, HOLDFAST_EXEC: spec.execId };
    const { id, socket } = await this.start(
      containerId,
      {
        AttachStdin: spec.stdin,
        AttachStdout: true,
        AttachStderr: true,
        Tty: tty,
        Cmd: [...spec.command],
        Env: Object.entries(environment).map(([name, value]) => `${name}=${value}`),
        WorkingDir: spec.cwd,
      },
      tty,
      what,
    );
    let ended = false;
    const { promise: closed, resolve: markClosed } = Promise.withResolvers<undefined>();
    const finish = (): void => {
      ended = true;
      markClosed(undefined);
    };
    socket.on('close', finish);
    socket.on('end', finish);
    // A broken connection ends the outputs; the engine knows how the process ended.
    socket.on('error', finish);

    const outputs = tty ? { stdout: socket.pipe(new PassThrough()), stderr: null } : demultiplex(socket);
    if (tty) socket.on('close', () => (outputs.stdout as PassThrough).end());
    const resize = (columns: number, rows: number): Promise<void> =>
      this.#resize({ sessionId, containerId, id, ended: () => ended }, columns, rows);
    try {
      if (spec.tty !== null) await resize(spec.tty.columns, spec.tty.rows);
    } catch (error) {
      socket.destroy();
      throw error;
    }
    const exited = closed.then(() => this.#exitCode(containerId, id));
    // Callers await it after the outputs: until then a rejection is not unhandled.
    exited.catch(() => undefined);
    return {
      stdout: outputs.stdout,
      stderr: outputs.stderr,
      stdin: socket,
      resize,
      exited,
      detach: () => socket.destroy(),
    };
  }

  /** Repeats the resizes that were refused while the container was paused. */
  async resizeAfterUnpause(sessionId: string): Promise<void> {
    const again = this.#pendingResizes.get(sessionId);
    this.#pendingResizes.delete(sessionId);
    for (const resize of again ?? []) await resize();
  }

  async #resize(terminal: ExecTerminal, columns: number, rows: number): Promise<void> {
    const { sessionId, containerId, id, ended } = terminal;
    const api = await this.#api();
    for (let tries = 1; !ended(); tries += 1) {
      try {
        await api.json({
          what: 'Cannot resize the terminal',
          method: 'POST',
          path: `/exec/${id}/resize`,
          query: { w: columns, h: rows },
          timeoutMs: this.#timeouts.queryMs,
        });
        return;
      } catch (error) {
        if (!(error instanceof EngineRefusal)) throw error;
        if ((await this.#containers.status(containerId)) === 'paused') {
          const later = this.#pendingResizes.get(sessionId) ?? new Set();
          later.add(() => this.#resize(terminal, columns, rows));
          this.#pendingResizes.set(sessionId, later);
          return;
        }
        // The process is still starting, or has ended already.
        if (tries >= RESIZE_TRIES) return;
        await sleep(RESIZE_PAUSE_MS);
      }
    }
  }

  /** Explains an error response by the container's state: error texts differ between engine versions. */
  async #explained(error: unknown, containerId: string, what: string): Promise<unknown> {
    if (!isRefusal(error, 404, 409, 500)) return error;
    const status = await this.#containers.status(containerId);
    if (status === 'paused') {
      return new HoldfastError('invalid_state', what, {
        why: 'the sandbox is paused',
        next: 'wake the session first',
        cause: error,
      });
    }
    // It runs: the error is about something else, and a conflict about a state that has passed.
    if (status === 'running') {
      if (error.status !== 409) return error;
      return new HoldfastError('invalid_state', what, {
        why: `the state of the sandbox was changing: ${error.reason}`,
        next: 'try again',
        cause: error,
      });
    }
    return new HoldfastError('sandbox_lost', what, {
      why: error.reason,
      next: 'send another request: it gets a new sandbox',
      cause: error,
    });
  }

  /** The engine may report a killed process before it reports that the container ends with it. */
  async #keepsRunning(containerId: string): Promise<boolean> {
    for (let tries = 1; tries <= SETTLE_TRIES; tries += 1) {
      if ((await this.#containers.inspect(containerId))?.State.Running !== true) return false;
      await sleep(EXIT_PAUSE_MS);
    }
    return true;
  }

  async #exitCode(containerId: string, id: string): Promise<number | null> {
    const what = 'Cannot read the exit code of a command';
    try {
      const api = await this.#api();
      for (let tries = 1; tries <= EXIT_TRIES; tries += 1) {
        const path = `/exec/${id}/json`;
        const reply = await api.json({ what, method: 'GET', path, timeoutMs: this.#timeouts.queryMs });
        const { Running, ExitCode } = parseReply(ExecReply, what, reply);
        if (!Running && ExitCode !== null) {
          if (!AMBIGUOUS.includes(ExitCode)) return ExitCode;
          return (await this.#keepsRunning(containerId)) ? ExitCode : null;
        }
        const container = await this.#containers.inspect(containerId);
        if (container?.State.Running !== true) return null;
        await sleep(EXIT_PAUSE_MS);
      }
      return null;
    } catch (error) {
      if (isRefusal(error, 404)) return null;
      // The engine is unreachable, and the sandbox may be gone with it.
      if (error instanceof HoldfastError && error.code === 'engine_unavailable') return null;
      throw error;
    }
  }
}
