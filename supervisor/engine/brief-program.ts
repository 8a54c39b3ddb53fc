import { HoldfastError } from '../../protocol/errors.ts';
import type { StartProgram } from './setup-programs.ts';

/** What takes longer in an image hangs there, or keeps us waiting on purpose. */
const BRIEF_MS = 30_000;

export interface BriefProgram {
  readonly execId: string;
  readonly command: readonly string[];
  /** Its standard input. Secrets and names of files belong there: every process sees an argument. */
  readonly input?: string | Buffer;
}

/** A container in which programs of a setup run. `end` ends it, and with it whatever runs there. */
export interface ProgramPlace {
  readonly start: StartProgram;
  readonly end: () => Promise<void>;
}

/**
 * Runs a short program, and returns its exit code; null if its container ended. If it takes more than `limitMs`, or `signal` is
 * aborted, the container ends. Errors: `setup_failed`, the reason of `signal`.
 */
export async function runBriefly(
  { start, end }: ProgramPlace,
  { execId, command, input }: BriefProgram,
  signal: AbortSignal,
  limitMs = BRIEF_MS,
): Promise<number | null> {
  signal.throwIfAborted();
  const run = async (): Promise<number | null> => {
    const exec = await start({
      ...{ execId, command, env: {}, cwd: '/', tty: null, stdin: input !== undefined },
    });
    exec.stdout.resume();
    exec.stderr?.resume();
    if (input !== undefined) exec.stdin.end(input);
    return await exec.exited;
  };
  const stop = AbortSignal.any([signal, AbortSignal.timeout(limitMs)]);
  const stopped = Promise.withResolvers<'stopped'>();
  const onStop = (): void => stopped.resolve('stopped');
  stop.addEventListener('abort', onStop, { once: true });
  try {
    const first = await Promise.race([run(), stopped.promise]);
    if (first !== 'stopped') return first;
  } finally {
    stop.removeEventListener('abort', onStop);
  }
  // The caller removes the container again at the end of the setup, and reports if that fails.
  await end().catch(() => undefined);
  signal.throwIfAborted();
  throw new HoldfastError('setup_failed', 'The image does not run programs', {
    why: `\`${command.join(' ')}\` did not end within ${limitMs / 1000} s`,
    next: 'begin with another image, such as holdfast/agent',
  });
}
