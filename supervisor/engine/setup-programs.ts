import { finished } from 'node:stream/promises';
import { HoldfastError } from '../../protocol/errors.ts';
import { IN_SANDBOX } from '../../sidecar/wire.ts';
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

/** Writes a secret to memory, by our own program and its standard input: an argument would be seen by every process. */
export async function writeSecretFile(
  start: StartProgram,
  { name, value }: { readonly name: string; readonly value: Buffer },
): Promise<void> {
  const script = `umask 077 && "$0" mkdir -p ${IN_SANDBOX.secrets} && exec "$0" cat > "${IN_SANDBOX.secrets}/$1"`;
  const exec = await start({
    execId: 'setup-secret',
    command: [BUSYBOX, 'sh', '-c', script, BUSYBOX, name],
    ...{ env: {}, cwd: '/', tty: null, stdin: true },
  });
  exec.stdout.resume();
  exec.stderr?.resume();
  exec.stdin.end(value);
  if ((await exec.exited) === 0) return;
  throw new HoldfastError('setup_failed', `The setup could not be given the secret ${name}`, {
    why: 'its file could not be written to memory; `limits.memory` may be too small',
  });
}
