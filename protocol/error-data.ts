import { z } from 'zod';
import { ERROR_CODES, type ErrorCode, HoldfastError } from './errors.ts';

// Beside the errors themselves, so that a thread that only throws them starts without what checks them: that takes as long again.

const codeNames = Object.keys(ERROR_CODES) as [ErrorCode, ...ErrorCode[]];
export const ErrorCodeSchema = z.enum(codeNames);

/** What travels in the `data` of a JSON-RPC error. */
export const ErrorDataSchema = z.object({
  code: ErrorCodeSchema,
  /** Why it could not be done, one sentence, no trailing period needed. */
  why: z.string().optional(),
  /** What the person can do next, as an imperative. */
  next: z.string().optional(),
  /** Facts for programs, by name: `{"session": "ses-…", "line": 3}`. */
  details: z.record(z.string(), z.json()).optional(),
});
export type ErrorData = z.infer<typeof ErrorDataSchema>;

/** The error that the other side threw. Unknown shapes become `internal`, never a crash. */
export function errorFromWire(message: string, data: unknown): HoldfastError {
  const parsed = ErrorDataSchema.safeParse(data);
  if (!parsed.success) return new HoldfastError('internal', message);
  const { code, why, next, details } = parsed.data;
  return new HoldfastError(code, message, { why, next, details });
}
