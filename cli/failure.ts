import { HoldfastError } from '../protocol/errors.ts';
import type { ErrorCode } from '../protocol/errors.ts';
import type { Style } from './render/style.ts';
import { sanitizeLine, sanitizeLines } from './render/text.ts';

export const EXIT = { done: 0, failed: 1, usage: 2, cancelled: 130 } as const;

/** The command line itself is wrong: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  readonly code: 'usage' | 'not_supported' | 'invalid_params';
  constructor(what: string, code: UsageError['code'] = 'usage') {
    super(what);
    this.code = code;
  }
}

/** Something that a later version will do was asked for. */
export function notInThisVersion(what: string): UsageError {
  return new UsageError(
    `\`${what}\` is not in this version of holdfast; \`holdfast --help\` lists what is`,
    'not_supported',
  );
}

export interface Failure {
  /** `error <code>: what; why; what to do`, safe to show on a terminal. */
  readonly line: string;
  readonly exitCode: number;
}

/** What any thrown value means for a person and for the exit code. */
export function describeFailure(error: unknown): Failure {
  if (error instanceof UsageError) {
    return { line: `error ${error.code}: ${sanitizeLine(error.message)}`, exitCode: EXIT.usage };
  }
  const failure = HoldfastError.from(error, 'The command failed');
  return {
    line: `error ${failure.code}: ${sanitizeLines(failure.sentence)}`,
    exitCode: exitCodeOf(failure.code),
  };
}

function exitCodeOf(code: ErrorCode): number {
  if (code === 'cancelled') return EXIT.cancelled;
  return code === 'invalid_params' ? EXIT.usage : EXIT.failed;
}

/** The first words of a failure's line in red, where there are colours. */
export function colorFailure(line: string, style: Style): string {
  const colon = line.indexOf(':') + 1;
  return `${style.red(line.slice(0, colon))}${line.slice(colon)}`;
}
