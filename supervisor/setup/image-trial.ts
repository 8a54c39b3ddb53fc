import { HoldfastError } from '../../protocol/errors.ts';
import type { Log } from '../base/log.ts';
import type { Engine, SandboxSpec } from '../engine/port.ts';

interface Options {
  readonly engine: Pick<Engine, 'startSandbox' | 'removeSandbox' | 'removeObject'>;
  /** Whether the runner of this sandbox takes requests. Rejects once `signal` is aborted. */
  readonly takesRequests: (id: string, signal: AbortSignal) => Promise<boolean>;
  readonly log: Log;
}

/**
 * Starts a sandbox from an image that root made. Nothing of the image runs but our runner. `addToLog` puts a line into the log of the
 * setup. Errors: `setup_failed` if nothing starts from it or takes requests, `engine_unavailable`, the reason of `signal`.
 */
export async function requireStarts(
  { engine, takesRequests }: Options,
  id: string,
  spec: SandboxSpec,
  addToLog: (line: string) => void,
  signal: AbortSignal,
): Promise<void> {
  try {
    signal.throwIfAborted();
    await engine.startSandbox(spec).catch((error: unknown) => {
      const failure = HoldfastError.from(error);
      throw failure.code === 'engine_unavailable' ? failure : unusableError(failure.sentence, failure);
    });
    if (!(await takesRequests(id, signal))) throw unusableError('nothing in it takes requests', undefined);
    signal.throwIfAborted();
  } catch (error) {
    // Whoever cancels learns nothing about the image.
    signal.throwIfAborted();
    addToLog(`[image] ${HoldfastError.from(error).sentence}\n`);
    throw error;
  }
}

/** Removes the sandbox of a setup, and its image, which is of no use. Never rejects: what stays is garbage. */
export async function removeUselessImage(
  { engine, log }: Options,
  id: string,
  reference: string,
): Promise<void> {
  const object = { objectId: reference, name: reference, sessionId: id, container: null };
  await engine
    .removeSandbox(id, 0)
    .then(() => engine.removeObject({ kind: 'image', role: 'prepared', ...object }))
    .catch((left: unknown) => log.warn('an image stays; gc removes it', { setup: id, error: left }));
}

function unusableError(why: string, cause: unknown): HoldfastError {
  return new HoldfastError('setup_failed', 'No sandbox can start from what the setup left', { why, cause });
}
