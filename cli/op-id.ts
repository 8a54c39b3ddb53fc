import { randomBytes } from 'node:crypto';

/** One per change a person asks for: asking again with it after a broken connection cannot do the change twice. */
export function newOpId(): string {
  return `cli-${randomBytes(12).toString('base64url')}`;
}
