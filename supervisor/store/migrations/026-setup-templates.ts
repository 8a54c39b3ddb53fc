import type { Migration } from './index.ts';

/** What new sessions begin with, of a setup that ran commands. Its files are in stores of the setup's own. */
export const setupTemplates: Migration = {
  version: 26,
  sql: `
    ALTER TABLE setups ADD COLUMN template TEXT;
    ALTER TABLE setups ADD COLUMN hasCommands INTEGER NOT NULL DEFAULT 0;
  `,
};
