import { HoldfastError } from '../../protocol/errors.ts';
import type { Profile } from '../../protocol/profile.ts';
import { resumeScriptOf, SETUP_RESUME_TIMEOUT_MS } from '../../protocol/setup.ts';
import { IN_SANDBOX } from '../../sidecar/wire.ts';
import type { Ids } from '../base/ids.ts';
import { toSingleLine } from '../base/single-line.ts';
import type { Engine } from '../engine/port.ts';
import type { EventLog } from '../history/event-log.ts';
import type { SidecarClient } from '../workspace/sidecar-client.ts';

const LINE_CHARACTERS = 200;
/** Of the output, the end is looked at for the last line. */
const TAIL_BYTES = 4096;
/** How long a killed script is waited for. */
const KILLED_MS = 5000;

export interface ResumeScriptOptions {
  readonly engine: Pick<Engine, 'exec'>;
  readonly events: Pick<EventLog, 'append'>;
  readonly ids: Ids;
  /** Default: `SETUP_RESUME_TIMEOUT_MS`. */
  readonly timeoutMs?: number;
}

interface ResumeEnd {
  /** Null: it did not start, or it was killed and not seen to end. */
  readonly exitCode: number | null;
  readonly timedOut: boolean;
  readonly lastLine: string;
}

/** Runs `setup.resume` of a profile in new sandboxes of sessions that had one before. */
export class ResumeScript {
  readonly #options: ResumeScriptOptions;

  constructor(options: ResumeScriptOptions) {
    this.#options = options;
  }

  /**
   * Runs the script as the agent's user, with the network of the session. The history says how it ended; the session goes on in any
   * case. Ends after the timeout, with everything that it started and that kept its output. Errors: the reason of `signal`, after
   * which the history says nothing and the sandbox must not be used; `sandbox_lost`, `engine_unavailable`; whatever else is wrong
   * is in the history.
   */
  async run(
    sessionId: string,
    { setup }: Profile,
    env: Readonly<Record<string, string>>,
    client: Pick<SidecarClient, 'killExec'>,
    signal: AbortSignal,
  ): Promise<void> {
    if (setup?.resume === undefined) return;
    if (signal.aborted) throw interruption(signal);
    const { engine, events, ids, timeoutMs = SETUP_RESUME_TIMEOUT_MS } = this.#options;
    const began = performance.now();
    const script = resumeScriptOf(setup.resume);
    const end = await this.#execute(engine, sessionId, ids.next('exec'), script, env, client, {
      timeoutMs,
      signal,
    }).catch((error: unknown): ResumeEnd => {
      const failure = HoldfastError.from(error);
      if (signal.aborted || failure.code === 'sandbox_lost' || failure.code === 'engine_unavailable')
        throw error;
      return { exitCode: null, timedOut: false, lastLine: toSingleLine(failure.sentence, LINE_CHARACTERS) };
    });
    const ms = Math.round(performance.now() - began);
    events.append(sessionId, [{ type: 'setup.resumed', data: { ...end, ms } }]);
  }

  async #execute(
    engine: Pick<Engine, 'exec'>,
    sessionId: string,
    execId: string,
    script: string,
    env: Readonly<Record<string, string>>,
    client: Pick<SidecarClient, 'killExec'>,
    { timeoutMs, signal }: { readonly timeoutMs: number; readonly signal: AbortSignal },
  ): Promise<ResumeEnd> {
    const exec = await engine.exec(sessionId, {
      ...{ execId, command: ['sh', '-ec', script], env, cwd: IN_SANDBOX.workspace },
      ...{ tty: null, stdin: false },
    });
    let tail: Buffer = Buffer.alloc(0);
    const keep = (chunk: Buffer): void => {
      tail = Buffer.concat([tail, chunk]).subarray(-TAIL_BYTES);
    };
    exec.stdout.on('data', keep);
    exec.stderr?.on('data', keep);
    let exitCode = await unlessLate(exec.exited, AbortSignal.any([AbortSignal.timeout(timeoutMs), signal]));
    if (signal.aborted) {
      const killed = client.killExec(execId, 'KILL').catch(() => undefined);
      await unlessLate(killed, AbortSignal.timeout(KILLED_MS));
      exec.detach();
      throw interruption(signal);
    }
    const timedOut = exitCode === LATE;
    if (exitCode === LATE) {
      await client.killExec(execId, 'KILL').catch(() => undefined);
      exitCode = await unlessLate(exec.exited, AbortSignal.timeout(KILLED_MS));
      exec.detach();
    }
    if (exitCode === null)
      throw new HoldfastError('sandbox_lost', 'The sandbox ended while `setup.resume` ran in it');
    const lines = tail
      .toString('utf8')
      .split(/[\r\n]+/)
      .map((line) => toSingleLine(line, LINE_CHARACTERS));
    const lastLine = lines.findLast((line) => line !== '') ?? '';
    return { exitCode: exitCode === LATE ? null : exitCode, timedOut, lastLine };
  }
}

/** Who aborts without a reason ends the request itself. */
function interruption({ reason }: AbortSignal): HoldfastError {
  if (reason instanceof HoldfastError) return reason;
  return new HoldfastError('cancelled', 'The request was cancelled while `setup.resume` ran', {
    cause: reason,
  });
}

const LATE = Symbol('late');

async function unlessLate<T>(what: Promise<T>, signal: AbortSignal): Promise<T | typeof LATE> {
  const { promise, resolve } = Promise.withResolvers<typeof LATE>();
  const stop = (): void => resolve(LATE);
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop, { once: true });
  try {
    return await Promise.race([what, promise]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
