import { HoldfastError } from '../../../protocol/errors.ts';

/** The reason of a damage as one sentence. */
export function damageReason(error: unknown): string {
  if (error instanceof HoldfastError) return error.why ?? error.message;
  return error instanceof Error ? error.message : String(error);
}
