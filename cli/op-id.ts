import { randomBytes } from 'node:crypto';

/** A new id for one change. Retrying a request with the same id cannot apply the change twice. */
export function newOpId(): string {
  return `cli-${randomBytes(12).toString('base64url')}`;
}
