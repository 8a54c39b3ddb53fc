import type { Migration } from './index.ts';

/** What a person's rule carries besides HTTP and TLS that names its server. */
export const egressProtocols: Migration = {
  version: 14,
  sql: `
    ALTER TABLE egress_rules ADD COLUMN tcp INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE egress_rules ADD COLUMN ech INTEGER NOT NULL DEFAULT 0;
  `,
};
