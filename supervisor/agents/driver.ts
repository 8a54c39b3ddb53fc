import type { Attachment } from '../../protocol/attachments.ts';
import type { TurnStatus } from '../../protocol/entities.ts';
import type { ErrorCode, ErrorData } from '../../protocol/errors.ts';
import type { TurnError } from '../../protocol/turn-events.ts';
import type { Profile } from '../../protocol/profile.ts';
import type { TurnKind } from '../../protocol/turn-kinds.ts';
import type { TurnLaunch, TurnProgress } from '../../sidecar/wire.ts';
import type { SessionRow } from '../store/sessions.ts';

/** How the agent ended a turn. Cancellation, timeout and loss of the sandbox are decided in `turns/`. */
export interface AgentOutcome {
  readonly status: Extract<TurnStatus, 'succeeded' | 'failed'>;
  readonly exitCode: number | null;
  /** The JSON text of what a handler returned. */
  readonly output: string | null;
  readonly error: TurnError | null;
}

export interface LaunchRequest {
  readonly turnId: string;
  readonly input: Buffer;
  /** Their files are in the directory of the turn already. */
  readonly attachments: readonly Attachment[];
  readonly freshTmp: boolean;
}

/** One way to run an agent that is a program for each turn: how a request becomes a launch, and what its exit means. */
export interface ProgramDriver {
  readonly kind: TurnKind;
  readonly runs: 'worker' | 'program';
  /** Errors: `invalid_params` for input that this agent cannot take. Called before the turn is queued. */
  validateInput(input: Buffer, attachments: readonly Attachment[]): void;
  launch(request: LaunchRequest, row: SessionRow, profile: Profile): { launch: TurnLaunch; input: Buffer };
  /** `result`: the whole result that a handler wrote; null: none. */
  outcome(progress: TurnProgress, result: Buffer | null): AgentOutcome;
}

/** An agent that stays and takes prompts: `acp/` has the conversation. */
export interface PromptDriver {
  readonly kind: TurnKind;
  readonly runs: 'conversation';
  readonly command: readonly string[];
  /** Errors: `invalid_params`. */
  validateInput(input: Buffer, attachments: readonly Attachment[]): void;
}

export type AgentDriver = ProgramDriver | PromptDriver;

export function turnError(
  code: ErrorCode,
  message: string,
  rest: Omit<ErrorData, 'code'> = {},
  traceback?: string,
): TurnError {
  return { message, data: { code, ...rest }, ...(traceback === undefined ? {} : { traceback }) };
}
