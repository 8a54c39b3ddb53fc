import type { Migration } from './index.ts';

/** What people chose of the settings of agents. */
export const agentChoices: Migration = {
  version: 18,
  sql: `
    -- \`revision\` is the seq of the event of the choice: the same value chosen once more is another choice.
    CREATE TABLE agent_choices (
      sessionId TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
      option TEXT NOT NULL,
      value TEXT NOT NULL,
      revision INTEGER NOT NULL,
      PRIMARY KEY (sessionId, option)
    ) STRICT, WITHOUT ROWID;
  `,
};
