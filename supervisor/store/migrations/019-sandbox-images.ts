import type { Migration } from './index.ts';

/** The image that the sandbox of a session was started from: a setup that runs again makes another. */
export const sandboxImages: Migration = {
  version: 19,
  sql: `ALTER TABLE sessions ADD COLUMN image TEXT;`,
};
