import type { Migration } from './index.ts';

/** The events that say when turns ran, which *Why this line?* reads of a whole history. */
export const eventSpans: Migration = {
  version: 21,
  sql: `
    CREATE INDEX events_about_spans ON events (sessionId, seq)
      WHERE type IN ('session.forked', 'turn.started', 'turn.ended');
  `,
};
