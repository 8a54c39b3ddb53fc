import type { Migration } from './index.ts';

/** Files that prompts bring along. Their bytes are contents. */
export const attachments: Migration = {
  version: 24,
  sql: `
    ALTER TABLE turns ADD COLUMN attachments TEXT NOT NULL DEFAULT '[]';
    -- Contents that no event names yet: uploads that wait for a prompt.
    CREATE TABLE attachment_uploads (
      sessionId TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
      sha256 TEXT NOT NULL,
      bytes INTEGER NOT NULL,
      uploadedAt INTEGER NOT NULL,
      PRIMARY KEY (sessionId, sha256)
    ) STRICT, WITHOUT ROWID;
  `,
};
