import { userInfo } from 'node:os';

/** The name of the account that this process runs as; `uid 1234` where the machine has no name for it. */
export function accountName(): string {
  try {
    return userInfo().username;
  } catch {
    return `uid ${String(process.getuid?.() ?? 'unknown')}`;
  }
}
