import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { z } from 'zod';
import { ErrorCodeSchema } from '../error-data.ts';
import type { ErrorCode } from '../errors.ts';

const TAIL_BYTES = 32 * 1024;

/** The fields of an error line in the supervisor's log. */
const ErrorLineSchema = z.object({
  time: z.string(),
  level: z.literal('error'),
  message: z.string(),
  error: z.object({ code: ErrorCodeSchema, message: z.string(), why: z.string().optional() }),
});

export interface LoggedError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly why: string | undefined;
}

/** The last complete lines of a log, oldest first. Empty if the log cannot be read. */
export function readLastLines(file: string, count: number): string[] {
  let descriptor: number;
  try {
    descriptor = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return []; // the supervisor has not created its log
  }
  try {
    const { size } = fstatSync(descriptor);
    const start = Math.max(0, size - TAIL_BYTES);
    const tail = Buffer.alloc(size - start);
    const read = readSync(descriptor, tail, 0, tail.length, start);
    const lines = tail.toString('utf8', 0, read).split('\n');
    if (start > 0) lines.shift();
    return lines.filter((line) => line !== '').slice(-count);
  } finally {
    closeSync(descriptor);
  }
}

/** The last error with a known code in lines of a log that are not older than `since` (ms since 1970). */
export function findLastError(lines: readonly string[], since: number): LoggedError | undefined {
  for (const line of lines.toReversed()) {
    const parsed = ErrorLineSchema.safeParse(asJson(line));
    if (!parsed.success) continue;
    if (Date.parse(parsed.data.time) < since) return undefined;
    const { code, message, why } = parsed.data.error;
    return { code, message, why };
  }
  return undefined;
}

function asJson(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined; // a line that is being written
  }
}
