import { z } from 'zod';
import { ERROR_CODES, type ErrorCode, HoldfastError } from './errors.ts';
import { parseNewer, readNewerAs } from './newer-values.ts';

// Separate from errors.ts, so that a worker thread that only throws errors starts without loading zod.

const codeNames = Object.keys(ERROR_CODES) as [ErrorCode, ...ErrorCode[]];
/** A code of a newer version says no less than that something failed. */
export const ErrorCodeSchema = readNewerAs(z.enum(codeNames), () => 'internal');

/** The `data` of a JSON-RPC error. */
export const ErrorDataSchema = z.object({
  code: ErrorCodeSchema,
  /** Why the request failed: one sentence without a period. */
  why: z.string().optional(),
  /** What the user can do, in the imperative. */
  next: z.string().optional(),
  /** Data for programs, by name: `{"session": "ses-…", "line": 3}`. */
  details: z.record(z.string(), z.json()).optional(),
});
export type ErrorData = z.infer<typeof ErrorDataSchema>;

/** Restores the error that the other side threw. Data of an unknown shape becomes an `internal` error. */
export function errorFromWire(message: string, data: unknown): HoldfastError {
  const parsed = parseNewer(ErrorDataSchema, data);
  if (!parsed.success) return new HoldfastError('internal', message);
  const { code, why, next, details } = parsed.data;
  return new HoldfastError(code, message, { why, next, details });
}
