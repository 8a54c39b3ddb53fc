import { finished } from 'node:stream/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import { IN_SANDBOX } from '../../sidecar/wire.ts';
import { type ProgramPlace, runBriefly } from './brief-program.ts';
import type { EngineExec, ExecSpec, PrepareIo, SetupStep } from './port.ts';

const BUSYBOX = `${IN_SANDBOX.runtime}/busybox`;

/** Starts a program where a setup runs: in a sandbox like those of sessions, or in the container that becomes an image. */
export type StartProgram = (spec: ExecSpec) => Promise<EngineExec>;

export interface SetupProgram extends SetupStep {
  readonly execId: string;
  readonly cwd: string;
}

/** `signal`: whoever aborts it ends the container. */
export type SetupProgramIo = Omit<PrepareIo, 'inspect'>;

/** Runs one step of a setup to its end. Errors: `setup_failed`, the reason of the signal. */
export async function runSetupProgram(
  start: StartProgram,
  { name, execId, command, shown, env, cwd }: SetupProgram,
  io: SetupProgramIo,
): Promise<void> {
  io.signal.throwIfAborted();
  io.onStep(name);
  const exec = await start({ execId, command, env, cwd, tty: null, stdin: false });
  exec.stdout.on('data', (chunk: Buffer) => io.onOutput(chunk, 'stdout'));
  exec.stderr?.on('data', (chunk: Buffer) => io.onOutput(chunk, 'stderr'));
  const outputs = [exec.stdout, exec.stderr].flatMap((stream) => (stream === null ? [] : [stream]));
  await Promise.all(outputs.map((stream) => finished(stream, { writable: false }).catch(() => undefined)));
  const code = await exec.exited;
  io.signal.throwIfAborted();
  if (code === 0) return;
  throw new HoldfastError('setup_failed', `The setup failed at ${name}`, {
    why:
      code === null
        ? 'its container ended; it may have used more memory than `limits.memory` allows'
        : `\`${shown}\` ended with ${code}`,
    details: { step: name, exitCode: code },
  });
}

/**
 * Writes a secret to memory, by our own program and its standard input: an argument would be seen by every process. Errors:
 * `setup_failed`, also if that takes too long; the reason of `signal`.
 */
export async function writeSecretFile(
  place: ProgramPlace,
  { name, value }: { readonly name: string; readonly value: Buffer },
  signal: AbortSignal,
  limitMs?: number,
): Promise<void> {
  const script = `umask 077 && "$0" mkdir -p ${IN_SANDBOX.secrets} && exec "$0" cat > "${IN_SANDBOX.secrets}/$1"`;
  const command = [BUSYBOX, 'sh', '-c', script, BUSYBOX, name];
  const writing = { execId: 'setup-secret', command, input: value };
  if ((await runBriefly(place, writing, signal, limitMs)) === 0) return;
  throw new HoldfastError('setup_failed', `The setup could not be given the secret ${name}`, {
    why: 'its file could not be written to memory; `limits.memory` may be too small',
  });
}
