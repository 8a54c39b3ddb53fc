import type { Migration } from './index.ts';

export const egressRules: Migration = {
  version: 2,
  sql: `
    CREATE TABLE egress_rules (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      scope TEXT NOT NULL,
      owner TEXT NOT NULL,
      host TEXT NOT NULL,
      effect TEXT NOT NULL,
      addedAt INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX egress_rule_hosts ON egress_rules (scope, owner, host);
  `,
};
