import type { Migration } from './index.ts';

/** Agents may ask for a host: a permission whose answer is a rule. Others have none. */
export const egressRequests: Migration = {
  version: 15,
  sql: `
    ALTER TABLE permissions ADD COLUMN host TEXT;
    CREATE INDEX permissions_for_hosts ON permissions (turnId) WHERE host IS NOT NULL;
  `,
};
