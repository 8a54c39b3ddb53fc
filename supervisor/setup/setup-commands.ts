import { HoldfastError } from '../../protocol/errors.ts';
import { PROFILE_DEFAULTS, type Profile } from '../../protocol/profile.ts';
import { SETUP_DISK_BYTES, SETUP_FILES } from '../../protocol/setup.ts';
import { IN_SANDBOX } from '../../sidecar/wire.ts';
import { watchSize } from '../base/size-watch.ts';
import type { Engine, SetupStep } from '../engine/port.ts';
import {
  type SetupProgramIo,
  type StartProgram,
  runSetupProgram,
  writeSecretFile,
} from '../engine/setup-programs.ts';
import type { SetupSecret } from './secret-parts.ts';

const MEASURE_MS = 3000;

interface Usage {
  readonly bytes: number;
  readonly files: number;
}

/** What a setup asks of its sidecar. */
export interface SetupSidecar {
  prepareHome(kept: readonly string[]): Promise<void>;
  workspaceUsage(): Promise<Usage>;
  homeUsage(): Promise<Usage>;
  clearWorkspace(): Promise<unknown>;
  clearHome(): Promise<void>;
  close(): void;
}

/** What a workspace holds before the first command. */
export interface SetupSeed {
  /** Changes with the files. */
  readonly hash: string;
  /** Copies them into the workspace of a sandbox whose sidecar runs. */
  copyTo(sandboxId: string): Promise<void>;
}

export interface SetupCommand extends SetupStep {
  /** The name of a secret that only this command gets, as its own variable. */
  readonly secret?: string;
}

/**
 * Runs commands of a setup in a sandbox like those of sessions, as the user that an agent is there. When they have ended, nothing
 * runs in it any more, and what they left is within its limits. The sidecar stays. Errors: `setup_failed`, the reason of the signal.
 */
export async function runCommands(
  engine: Pick<Engine, 'exec' | 'stopAgent'>,
  sidecar: SetupSidecar,
  what: {
    readonly sandboxId: string;
    readonly profile: Profile;
    readonly commands: readonly SetupCommand[];
    readonly secrets: readonly SetupSecret[];
    readonly seed: SetupSeed | null;
  },
  io: SetupProgramIo,
): Promise<void> {
  const { sandboxId, profile, commands, secrets, seed } = what;
  const start: StartProgram = (spec) => engine.exec(sandboxId, spec);
  const ended = new AbortController();
  const tooMuch = new AbortController();
  const signal = AbortSignal.any([io.signal, tooMuch.signal]);
  const place = { start, end: () => engine.stopAgent(sandboxId, 0) };
  const stop = (): void => void place.end().catch(() => undefined);
  signal.addEventListener('abort', stop, { once: true });
  try {
    await sidecar.prepareHome([]);
    await seed?.copyTo(sandboxId);
    signal.throwIfAborted();
    let excess: string | null = null;
    void watchSize({
      measure: async () => {
        excess = await excessOf(sidecar, profile);
        return excess === null ? 0 : 1;
      },
      ...{ limitBytes: 0, everyMs: MEASURE_MS },
      signal: AbortSignal.any([signal, ended.signal]),
    }).then((found) => {
      if (found) tooMuch.abort(tooMuchError(excess ?? 'its limits'));
    });
    for (const secret of secrets) await writeSecretFile(place, secret, signal);
    for (const { name, command, shown, env } of commands) {
      const program = { name, execId: `setup-${name}`, command, shown, env, cwd: IN_SANDBOX.workspace };
      await runSetupProgram(start, program, { ...io, signal });
    }
    ended.abort();
    await engine.stopAgent(sandboxId, 0);
    signal.throwIfAborted();
    const left = await excessOf(sidecar, profile);
    if (left !== null) throw tooMuchError(left);
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  } finally {
    ended.abort();
    signal.removeEventListener('abort', stop);
  }
}

/** What was stored counts, whatever could be seen of it while it was written. Errors: `setup_failed`. */
export function requireWithinLimits(
  profile: Profile,
  left: { readonly workspace: Usage; readonly home: Usage },
): void {
  const excess = exceeded(profile, left.workspace, left.home);
  if (excess !== null) throw tooMuchError(excess);
}

async function excessOf(sidecar: SetupSidecar, profile: Profile): Promise<string | null> {
  return exceeded(profile, await sidecar.workspaceUsage(), await sidecar.homeUsage());
}

/** Which limit is exceeded; null: none. */
function exceeded({ workspace, limits }: Profile, work: Usage, home: Usage): string | null {
  const most = {
    workspace: Math.min(SETUP_DISK_BYTES, workspace?.limit ?? SETUP_DISK_BYTES),
    home: Math.min(SETUP_DISK_BYTES, limits?.home ?? PROFILE_DEFAULTS.limits.home),
  };
  if (work.bytes > most.workspace) return `${most.workspace} bytes in /workspace`;
  if (home.bytes > most.home) return `${most.home} bytes in HOME`;
  return work.files > SETUP_FILES || home.files > SETUP_FILES ? `${SETUP_FILES} files` : null;
}

function tooMuchError(limit: string): HoldfastError {
  return new HoldfastError('setup_failed', 'The setup wrote too much', {
    why: `its commands may leave no more than ${limit}`,
    next: 'remove what sessions do not need at the end of `setup.run`, or raise `workspace.limit` or `limits.home`',
  });
}
