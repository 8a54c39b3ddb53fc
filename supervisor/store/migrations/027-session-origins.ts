import type { Migration } from './index.ts';

/** How each session began, and who created it. Earlier sessions say the first in their events and the second nowhere. */
export const sessionOrigins: Migration = {
  version: 27,
  sql: `
    ALTER TABLE sessions ADD COLUMN began TEXT NOT NULL DEFAULT 'new';
    ALTER TABLE sessions ADD COLUMN author TEXT;
    UPDATE sessions SET began = CASE
      WHEN origin IS NULL THEN 'import'
      WHEN EXISTS (SELECT 1 FROM events WHERE sessionId = sessions.id AND type = 'session.forked') THEN 'fork'
      ELSE 'snapshot' END
      WHERE origin IS NOT NULL
        OR EXISTS (SELECT 1 FROM events WHERE sessionId = sessions.id AND type = 'session.imported');
  `,
};
