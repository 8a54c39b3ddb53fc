import { HoldfastError } from '../../protocol/errors.ts';
import type { AgentThatRuns, Profile } from '../../protocol/profile.ts';
import { type HandlerResult, HandlerResultSchema } from '../../sidecar/wire.ts';
import { addLimits } from './limits.ts';
import { nameOf, pathInSandbox } from './prompt-files.ts';
import { type ProgramDriver, turnError } from './driver.ts';

/** Longest texts of an agent's error that are stored. */
const MESSAGE_CHARACTERS = 8000;
const TRACEBACK_CHARACTERS = 32_000;
const NAME_CHARACTERS = 200;

/** A file with `handler(input)`: JSON in, JSON out, in a warm worker that keeps its memory from turn to turn. */
export const handlerDriver = (config: AgentThatRuns<'worker'>): ProgramDriver => ({
  kind: config.protocol,
  runs: 'worker',

  validateInput(input, attachments): void {
    try {
      const value: unknown = JSON.parse(input.toString('utf8'));
      if (attachments.length > 0 && !isObject(value)) {
        throw new HoldfastError('invalid_params', 'The input cannot take attachments', {
          why: 'a handler gets them as `attachments` in its input, which is not an object',
          next: `send an object, for example '{"query": "…"}'`,
        });
      }
    } catch (error) {
      if (error instanceof HoldfastError) throw error;
      throw new HoldfastError('invalid_params', 'The input is not JSON', {
        why: error instanceof Error ? error.message : String(error),
        next: `quote it for the shell, for example '{"query": "…"}'`,
        cause: error,
      });
    }
  },

  launch(request, row, profile: Profile) {
    const value: unknown = JSON.parse(request.input.toString('utf8'));
    const attachments = request.attachments.map((one) => ({
      name: nameOf(one),
      path: pathInSandbox(request.turnId, one).toString('utf8'),
      type: one.kind === 'link' ? null : one.content.mediaType,
    }));
    const more = attachments.length === 0 ? {} : { attachments };
    // The session's name replaces one in the body: callers must not claim to be another conversation.
    const input = isObject(value) ? { ...value, ...more, session_id: row.name } : value;
    return {
      launch: {
        turnId: request.turnId,
        kind: 'handler',
        argv: [],
        env: { ...profile.env },
        entry: config.entry,
        freshTmp: request.freshTmp,
      },
      input: Buffer.from(JSON.stringify(input)),
    };
  },

  outcome(progress, result) {
    if (progress.workerDied || result === null) {
      const exitCode = progress.exitCode;
      return {
        status: 'failed',
        exitCode,
        output: null,
        error: turnError(
          'worker_crashed',
          "The handler's process ended before it answered",
          addLimits(
            {
              why:
                exitCode === null
                  ? 'it was killed or ended itself'
                  : `it ended with exit code ${String(exitCode)}`,
              next: 'the next request gets a new worker; see what it printed with `holdfast turn show TURN`',
            },
            progress.limits,
          ),
        ),
      };
    }
    const answer = parseAnswer(result);
    if (answer === null) {
      return {
        status: 'failed',
        exitCode: null,
        output: null,
        error: turnError('agent_failed', "The handler's answer cannot be read", {
          why: 'it is not the JSON a worker writes',
        }),
      };
    }
    if (answer.ok)
      return { status: 'succeeded', exitCode: null, output: JSON.stringify(answer.output), error: null };
    const { message, traceback } = answer.error;
    const type = answer.error.type.slice(0, NAME_CHARACTERS);
    const next = answer.error.next?.slice(0, MESSAGE_CHARACTERS);
    return {
      status: 'failed',
      exitCode: null,
      output: null,
      error: turnError(
        'agent_failed',
        `The handler raised ${type}: ${message.slice(0, MESSAGE_CHARACTERS)}`,
        addLimits({ details: { type }, ...(next === undefined ? {} : { next }) }, answer.error.limits ?? []),
        traceback?.slice(-TRACEBACK_CHARACTERS),
      ),
    };
  },
});

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function parseAnswer(result: Buffer): HandlerResult | null {
  try {
    return HandlerResultSchema.parse(JSON.parse(result.toString('utf8')));
  } catch {
    return null;
  }
}
