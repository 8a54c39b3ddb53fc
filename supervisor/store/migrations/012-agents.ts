import type { Migration } from './index.ts';

export const agents: Migration = {
  version: 12,
  sql: `
    -- What is known of the conversation with a session's agent, up to \`stdoutOffset\` of its process.
    CREATE TABLE agent_conversations (
      sessionId TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
      state TEXT NOT NULL,
      command TEXT NOT NULL,
      processId TEXT,
      generation INTEGER,
      stdoutOffset INTEGER NOT NULL,
      isSkipping INTEGER NOT NULL,
      stderrOffset INTEGER NOT NULL,
      -- Behind the last byte of \`agent_input\` that was ever stored for the process.
      inputOffset INTEGER NOT NULL
    ) STRICT;
    -- Messages to the process that it may not have received, by their offset in its input.
    CREATE TABLE agent_input (
      sessionId TEXT NOT NULL REFERENCES agent_conversations (sessionId) ON DELETE CASCADE,
      start INTEGER NOT NULL,
      bytes BLOB NOT NULL,
      PRIMARY KEY (sessionId, start)
    ) STRICT;
    CREATE TABLE permissions (
      ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE,
      sessionId TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
      turnId TEXT NOT NULL,
      kind TEXT NOT NULL,
      title TEXT NOT NULL,
      locations TEXT NOT NULL,
      options TEXT NOT NULL,
      askedAt INTEGER NOT NULL,
      answeredAt INTEGER,
      answer TEXT,
      answeredBy TEXT
    ) STRICT;
    CREATE INDEX permissions_of_session ON permissions (sessionId, ordinal);
    CREATE INDEX permissions_waiting ON permissions (sessionId) WHERE answeredAt IS NULL;
  `,
};
