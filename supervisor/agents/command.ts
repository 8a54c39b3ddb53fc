import { isUtf8 } from 'node:buffer';
import { HoldfastError } from '../../protocol/errors.ts';
import type { AgentThatRuns, Profile } from '../../protocol/profile.ts';
import { addLimits } from './limits.ts';
import { withPaths } from './prompt-files.ts';
import { type ProgramDriver, turnError } from './driver.ts';

/** The kernel's limit for one argument, less its NUL byte. */
const ARGUMENT_BYTES = 128 * 1024 - 1;
/** As long as every turn's id. */
const ANY_TURN = 'turn-aaaaaaaaaaaaaaaa';

/** Runs any program: the prompt is its stdin or its last argument, and its exit code is the outcome. */
export const commandDriver = (config: AgentThatRuns<'program'>): ProgramDriver => ({
  kind: config.protocol,
  runs: 'program',

  validateInput(given, attachments): void {
    if (config.prompt !== 'argument') return;
    const input = withPaths(given, ANY_TURN, attachments);
    if (input.includes(0) || !isUtf8(input)) {
      throw new HoldfastError('invalid_params', 'The prompt cannot be an argument', {
        why: 'it has a NUL byte or is not UTF-8',
        next: 'write `prompt: stdin` in holdfast.yaml: then any bytes can be sent',
      });
    }
    if (input.byteLength > ARGUMENT_BYTES) {
      throw new HoldfastError(
        'invalid_params',
        `The prompt is too long for an argument: ${String(input.byteLength)} bytes`,
        {
          why: `one argument holds at most ${String(ARGUMENT_BYTES)} bytes`,
          next: 'write `prompt: stdin` in holdfast.yaml',
        },
      );
    }
  },

  launch(request, _row, profile: Profile) {
    const asArgument = config.prompt === 'argument';
    const input = withPaths(request.input, request.turnId, request.attachments);
    return {
      launch: {
        turnId: request.turnId,
        kind: 'command',
        argv: asArgument ? [...config.command, input.toString('utf8')] : [...config.command],
        env: { ...profile.env },
        entry: null,
        freshTmp: request.freshTmp,
      },
      input: asArgument ? Buffer.alloc(0) : input,
    };
  },

  outcome(progress) {
    const { exitCode } = progress;
    if (exitCode === 0) return { status: 'succeeded', exitCode, output: null, error: null };
    const program = config.command[0] ?? '';
    const next = 'see its error output with `holdfast turn show TURN` or `session events`';
    if (exitCode === null) {
      return {
        status: 'failed',
        exitCode,
        output: null,
        error: turnError(
          'agent_failed',
          'The exit code of the agent is unknown',
          addLimits(
            { why: 'something in the sandbox killed the process that waits for it', next },
            progress.limits,
          ),
        ),
      };
    }
    const why =
      exitCode === 127
        ? `${program}, or a program that it started, was not found in the image`
        : exitCode === 126
          ? `${program}, or a program that it started, cannot be run`
          : exitCode > 128
            ? `it was ended by signal ${String(exitCode - 128)}`
            : undefined;
    return {
      status: 'failed',
      exitCode,
      output: null,
      error: turnError(
        'agent_failed',
        `The agent ended with exit code ${String(exitCode)}`,
        addLimits({ ...(why === undefined ? {} : { why }), next }, progress.limits),
      ),
    };
  },
});
