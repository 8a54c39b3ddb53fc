import type { Migration } from './index.ts';

/**
 * A profile's name can be reused after an undeploy; its incarnation cannot. An operation on one incarnation never
 * affects another of the same name.
 */
export const incarnations: Migration = {
  version: 5,
  sql: `
    ALTER TABLE profiles ADD COLUMN incarnation INTEGER NOT NULL DEFAULT 0;
    UPDATE profiles SET incarnation = rowid;
    INSERT INTO counters VALUES ('incarnation', (SELECT coalesce(max(incarnation), 0) FROM profiles));
  `,
};
