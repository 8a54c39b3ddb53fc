import type { ErrorCode, HoldfastError } from '../../protocol/errors.ts';

const TRANSIENT: ReadonlySet<ErrorCode> = new Set([
  'connection_closed',
  'sandbox_lost',
  'engine_unavailable',
  'timeout',
  'no_space',
]);

/** The sidecar, the engine or the disk is unavailable for now: the error says nothing about the work itself. */
export function isTransient({ code }: HoldfastError): boolean {
  return TRANSIENT.has(code);
}
