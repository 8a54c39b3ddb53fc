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
/** Signals a process that was left behind; what still lives after it is killed. */
const LEAVE_GRACE_MS = 2000;

export interface ExecRequest {
  readonly command: readonly string[];
  readonly tty: { readonly columns: number; readonly rows: number } | null;
  readonly stdin: boolean;
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
}

/** Where an exec's output goes: to the client that asked for it. Each call resolves when the client has room for more. */
export interface ExecListener {
  output(execId: string, stream: 'stdout' | 'stderr', bytes: Buffer): Promise<void>;
  exited(execId: string, exitCode: number | null): Promise<void>;
  /** Settles when the client is gone. */
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
  readonly live: ActiveWork;
  readonly ids: Ids;
  readonly log: Log;
  readonly now: () => number;
}

/** Processes that clients run in agent containers. They belong to the connection that asked: they end when it does. */
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
    const { engine, lifecycle, live, ids, events, records, now } = this.#options;
    if (!engine.capabilities().execAttach) {
      throw new HoldfastError('not_supported', 'This engine cannot run a process with its streams attached');
    }
    const execId = ids.next('exec');
    let started: EngineExec | null = null;
    live.add(sessionId, execId, 'exec');
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
      live.remove(sessionId, execId);
      this.#settle(sessionId, execId);
      throw error;
    }
  }

  /** A process that is on no record must not go on without anybody to read it. */
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

  /** Resolves when the process has taken the bytes. */
  async input(execId: string, bytes: Buffer, end: boolean): Promise<void> {
    const { stdin } = this.#find(execId).exec;
    if (bytes.byteLength > 0) {
      await new Promise<void>((resolve, reject) => {
        stdin.write(bytes, (error) => {
          if (error === null || error === undefined) resolve();
          else
            reject(
              new HoldfastError('invalid_state', 'The process takes no more input', {
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

  /** Ends every exec of a session and waits for it. */
  async endAll(sessionId: string): Promise<void> {
    const mine = [...this.#running].filter(([, one]) => one.sessionId === sessionId);
    await Promise.all(
      mine.map(async ([execId, { ended }]) => {
        await this.#end(sessionId, execId);
        await ended;
      }),
    );
  }

  /** The agent's container is gone, and its processes with it. */
  onAgentGone(sessionId: string): void {
    for (const { sessionId: its, exec } of this.#running.values()) if (its === sessionId) exec.detach();
  }

  /** Execs do not outlive the supervisor that carries their streams. */
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
    // The client must have the answer with the exec's id before its first output.
    await new Promise((resolve) => setImmediate(resolve));
    const client = { there: true };
    void listener.disconnected.then(() => {
      client.there = false;
      if (this.#running.has(execId)) void this.#end(sessionId, execId);
    });
    const carry = async (stream: 'stdout' | 'stderr', source: NodeJS.ReadableStream): Promise<void> => {
      try {
        for await (const chunk of source) {
          // A client that went away is not a reason to block the process on its pipe until it is ended.
          if (client.there)
            await listener.output(execId, stream, Buffer.from(chunk as Uint8Array)).catch(() => undefined);
        }
      } catch (error) {
        this.#options.log.debug('an exec stream broke', {
          exec: execId,
          why: HoldfastError.from(error).sentence,
        });
      }
    };
    await Promise.all([
      carry('stdout', exec.stdout),
      ...(exec.stderr === null ? [] : [carry('stderr', exec.stderr)]),
    ]);
    const exitCode = await exec.exited.catch(() => null);
    this.#running.delete(execId);
    try {
      events.append(sessionId, [{ type: 'exec.ended', data: { execId, exitCode, signal: null } }]);
      this.#settle(sessionId, execId);
    } catch (error) {
      this.#options.log.warn('the end of an exec is not on record', {
        exec: execId,
        why: HoldfastError.from(error).sentence,
      });
      this.#options.live.remove(sessionId, execId);
    }
    if (client.there) await listener.exited(execId, exitCode).catch(() => undefined);
  }

  async #end(sessionId: string, execId: string): Promise<void> {
    const { lifecycle, log } = this.#options;
    try {
      await lifecycle.thaw(sessionId);
      await lifecycle.withSidecar(sessionId, async (client) => {
        await client.killExec(execId, 'HUP');
        await client.killExec(execId, 'TERM');
        const ended = this.#running.get(execId)?.ended ?? Promise.resolve();
        const late = new Promise<'late'>((resolve) =>
          setTimeout(() => resolve('late'), LEAVE_GRACE_MS).unref(),
        );
        if ((await Promise.race([ended, late])) === 'late') await client.killExec(execId, 'KILL');
      });
    } catch (error) {
      log.warn('an exec could not be ended', { exec: execId, why: HoldfastError.from(error).sentence });
    }
    this.#running.get(execId)?.exec.detach();
  }

  #settle(sessionId: string, execId: string): void {
    const { live, records, now } = this.#options;
    live.remove(sessionId, execId);
    const row = records.peek(sessionId);
    if (row?.status === 'active' && live.count(sessionId) === 0) {
      records.change(sessionId, { status: 'idle', lastActiveAt: now() }, 'the command ended');
    }
  }
}
