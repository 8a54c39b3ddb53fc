import { HoldfastError } from '../protocol/errors.ts';
import type { ErrorCode } from '../protocol/errors.ts';
import type { Style } from './render/style.ts';
import { quoteForShell, sanitizeLine, sanitizeLines } from './render/text.ts';
import { withHost } from './suggested-commands.ts';

export const EXIT = { done: 0, failed: 1, usage: 2, cancelled: 130 } as const;

/** A mistake in the command line itself. Exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  readonly code: 'usage' | 'not_supported' | 'invalid_params';
  constructor(what: string, code: UsageError['code'] = 'usage') {
    super(what);
    this.code = code;
  }
}

/** The error for a command or option that a later version will have. */
export function notInThisVersion(what: string): UsageError {
  return new UsageError(
    `\`${what}\` is not available in this version; see \`holdfast --help\``,
    'not_supported',
  );
}

export interface Failure {
  /** `error <code>: what; why; what to do`, with control characters escaped. */
  readonly line: string;
  readonly exitCode: number;
}

/** The error line and the exit code for any thrown value. */
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

/** What a person called the things that the advice of an error names in capitals, as in `holdfast review SESSION`. */
export interface Named {
  readonly SESSION?: string | undefined;
  readonly TURN?: string | undefined;
}

/** The error with these names and the machine in the commands of its advice, so that they can be run as they are. */
export function withNames(error: unknown, named: Named, host: string | null): unknown {
  if (error instanceof UsageError) {
    const message = withHost(error.message, host);
    return message === error.message ? error : new UsageError(message, error.code);
  }
  if (!(error instanceof HoldfastError) || error.next === undefined) return error;
  const { code, message, why, details } = error;
  const commands = error.next.replaceAll(/`holdfast [^`]*`/g, (command) =>
    // The first only: a path behind it may contain the same word.
    command.replace(/\b(?:SESSION|TURN)\b/, (word) => {
      const name = named[word as keyof Named];
      return name === undefined ? word : quoteForShell(name);
    }),
  );
  const next = withHost(commands, host);
  return next === error.next
    ? error
    : new HoldfastError(code, message, {
        next,
        cause: error,
        ...(why === undefined ? {} : { why }),
        ...(details === undefined ? {} : { details }),
      });
}

function exitCodeOf(code: ErrorCode): number {
  if (code === 'cancelled') return EXIT.cancelled;
  return code === 'invalid_params' ? EXIT.usage : EXIT.failed;
}

/** Colours the `error <code>:` part of an error line red. */
export function colorFailure(line: string, style: Style): string {
  const colon = line.indexOf(':') + 1;
  return `${style.red(line.slice(0, colon))}${line.slice(colon)}`;
}
