import type { DispatchResult } from '../../protocol/entities.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Engine, EngineExec } from '../engine/port.ts';
import type { EventLog } from '../history/event-log.ts';
import type { Ids } from '../base/ids.ts';
import type { Lifecycle } from '../sandboxes/lifecycle.ts';
import type { ActiveWork } from '../sandboxes/active-work.ts';
import type { SessionRecords } from '../history/session-records.ts';

const SHOWN_ARGUMENT = 200;
const SHOWN_ARGUMENTS = 20;
/** Time between TERM and KILL for a process whose client is gone. */
const ORPHAN_GRACE_MS = 2000;

export interface ExecRequest {
  readonly command: readonly string[];
  readonly tty: { readonly columns: number; readonly rows: number } | null;
  readonly stdin: boolean;
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
}

/** The client that started an exec. Each call resolves when the client can take more. */
export interface ExecListener {
  output(execId: string, stream: 'stdout' | 'stderr', bytes: Buffer): Promise<void>;
  exited(execId: string, exitCode: number | null): Promise<void>;
  /** Settles when the client has disconnected. */
  readonly disconnected: Promise<unknown>;
}

interface Running {
  readonly sessionId: string;
  readonly exec: EngineExec;
  readonly ended: Promise<void>;
}

export interface ExecsOptions {
  readonly engine: Engine;
  readonly lifecycle: Lifecycle;
  readonly records: SessionRecords;
  readonly events: EventLog;
  readonly activeWork: ActiveWork;
  readonly ids: Ids;
  readonly log: Log;
  readonly now: () => number;
}

/** Processes that clients run in agent containers. An exec ends with the connection that started it. */
export class Execs {
  readonly #options: ExecsOptions;
  readonly #running = new Map<string, Running>();

  constructor(options: ExecsOptions) {
    this.#options = options;
  }

  async start(
    sessionId: string,
    request: ExecRequest,
    listener: ExecListener,
  ): Promise<{ execId: string; dispatched: DispatchResult }> {
    const { engine, lifecycle, activeWork, ids, events, records, now } = this.#options;
    if (!engine.capabilities().execAttach) {
      throw new HoldfastError('not_supported', 'This engine cannot run a process with its streams attached');
    }
    const execId = ids.next('exec');
    let started: EngineExec | null = null;
    activeWork.add(sessionId, execId, 'exec');
    try {
      const ready = await lifecycle.dispatch(sessionId, execId);
      const env = { ...lifecycle.environment(sessionId, ready.profile.config), ...request.env };
      const exec = await engine.exec(sessionId, { execId, ...request, env });
      started = exec;
      records.change(sessionId, { status: 'active', lastActiveAt: now() }, 'a command runs', [
        {
          type: 'exec.started',
          data: {
            execId,
            command: request.command.slice(0, SHOWN_ARGUMENTS).map((one) => one.slice(0, SHOWN_ARGUMENT)),
            tty: request.tty !== null,
            ...ready.dispatched,
          },
        },
      ]);
      this.#running.set(execId, {
        sessionId,
        exec,
        ended: this.#follow(sessionId, execId, exec, listener, events),
      });
      return { execId, dispatched: ready.dispatched };
    } catch (error) {
      if (started !== null) await this.#abandon(sessionId, execId, started);
      activeWork.remove(sessionId, execId);
      this.#removeActiveWork(sessionId, execId);
      throw error;
    }
  }

  /** A process that is not recorded must not keep running, because nobody reads its output. */
  async #abandon(sessionId: string, execId: string, exec: EngineExec): Promise<void> {
    exec.detach();
    try {
      await this.#options.lifecycle.withSidecar(sessionId, (client) => client.killExec(execId, 'KILL'));
    } catch (error) {
      this.#options.log.warn('an exec could not be ended', {
        exec: execId,
        why: HoldfastError.from(error).sentence,
      });
    }
  }

  /** Resolves when the process has read the bytes. */
  async input(execId: string, bytes: Buffer, end: boolean): Promise<void> {
    const { stdin } = this.#find(execId).exec;
    if (bytes.byteLength > 0) {
      await new Promise<void>((resolve, reject) => {
        stdin.write(bytes, (error) => {
          if (error === null || error === undefined) resolve();
          else
            reject(
              new HoldfastError('invalid_state', 'The process reads no more input', {
                why: error.message,
                cause: error,
              }),
            );
        });
      });
    }
    if (end) stdin.end();
  }

  async resize(execId: string, columns: number, rows: number): Promise<void> {
    await this.#find(execId).exec.resize(columns, rows);
  }

  async kill(execId: string, signal: string): Promise<void> {
    const { sessionId } = this.#find(execId);
    await this.#options.lifecycle.withSidecar(sessionId, (client) => client.killExec(execId, signal));
  }

  /** Ends every exec of a session and waits for their ends. */
  async endAll(sessionId: string): Promise<void> {
    const execs = [...this.#running].filter(([, one]) => one.sessionId === sessionId);
    await Promise.all(
      execs.map(async ([execId, { ended }]) => {
        await this.#end(sessionId, execId);
        await ended;
      }),
    );
  }

  /** The agent's container is gone, and its processes with it. */
  onAgentGone(sessionId: string): void {
    for (const { sessionId: its, exec } of this.#running.values()) if (its === sessionId) exec.detach();
  }

  /** Ends every exec: their streams end with this supervisor. */
  async close(): Promise<void> {
    await Promise.all([...this.#running].map(([execId, { sessionId }]) => this.#end(sessionId, execId)));
    await Promise.all([...this.#running.values()].map(({ ended }) => ended));
  }

  #find(execId: string): Running {
    const running = this.#running.get(execId);
    if (running === undefined)
      throw new HoldfastError('not_found', `There is no exec ${execId}`, { why: 'it has ended' });
    return running;
  }

  async #follow(
    sessionId: string,
    execId: string,
    exec: EngineExec,
    listener: ExecListener,
    events: EventLog,
  ): Promise<void> {
    // The client needs the response with the exec's id before the first output.
    await new Promise((resolve) => setImmediate(resolve));
    const client = { isConnected: true };
    void listener.disconnected.then(() => {
      client.isConnected = false;
      if (this.#running.has(execId)) void this.#end(sessionId, execId);
    });
    const forward = async (stream: 'stdout' | 'stderr', source: NodeJS.ReadableStream): Promise<void> => {
      try {
        for await (const chunk of source) {
          // Output is read to the end without a client, so that the process does not block on its pipe.
          if (client.isConnected)
            await listener.output(execId, stream, Buffer.from(chunk as Uint8Array)).catch(() => undefined);
        }
      } catch (error) {
        this.#options.log.debug('a stream of an exec failed', {
          exec: execId,
          why: HoldfastError.from(error).sentence,
        });
      }
    };
    await Promise.all([
      forward('stdout', exec.stdout),
      ...(exec.stderr === null ? [] : [forward('stderr', exec.stderr)]),
    ]);
    const exitCode = await exec.exited.catch(() => null);
    this.#running.delete(execId);
    try {
      events.append(sessionId, [{ type: 'exec.ended', data: { execId, exitCode, signal: null } }]);
      this.#removeActiveWork(sessionId, execId);
    } catch (error) {
      this.#options.log.warn('the end of an exec was not recorded', {
        exec: execId,
        why: HoldfastError.from(error).sentence,
      });
      this.#options.activeWork.remove(sessionId, execId);
    }
    if (client.isConnected) await listener.exited(execId, exitCode).catch(() => undefined);
  }

  async #end(sessionId: string, execId: string): Promise<void> {
    const { lifecycle, log } = this.#options;
    try {
      await lifecycle.thaw(sessionId);
      await lifecycle.withSidecar(sessionId, async (client) => {
        await client.killExec(execId, 'HUP');
        await client.killExec(execId, 'TERM');
        const ended = this.#running.get(execId)?.ended ?? Promise.resolve();
        const timeout = new Promise<'timeout'>((resolve) =>
          setTimeout(() => resolve('timeout'), ORPHAN_GRACE_MS).unref(),
        );
        if ((await Promise.race([ended, timeout])) === 'timeout') await client.killExec(execId, 'KILL');
      });
    } catch (error) {
      log.warn('an exec could not be ended', { exec: execId, why: HoldfastError.from(error).sentence });
    }
    this.#running.get(execId)?.exec.detach();
  }

  #removeActiveWork(sessionId: string, execId: string): void {
    const { activeWork, records, now } = this.#options;
    activeWork.remove(sessionId, execId);
    const row = records.peek(sessionId);
    if (row?.status === 'active' && activeWork.count(sessionId) === 0) {
      records.change(sessionId, { status: 'idle', lastActiveAt: now() }, 'the command ended');
    }
  }
}
