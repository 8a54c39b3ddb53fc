import type { Migration } from './index.ts';

/**
 * The conversation as people read it, derived from events: it can be dropped and is then made again. The index of words
 * is not here, because not every SQLite has FTS5 (supervisor/conversation/word-index.ts).
 */
export const conversation: Migration = {
  version: 10,
  sql: `
    CREATE TABLE conversation_items (
      sessionId TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
      id INTEGER NOT NULL,
      -- The place in the conversation; 0 for a prompt that waits in the queue.
      at INTEGER NOT NULL,
      -- The last event that changed it.
      seq INTEGER NOT NULL,
      key TEXT,
      data TEXT NOT NULL,
      PRIMARY KEY (sessionId, id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX conversation_items_in_order ON conversation_items (sessionId, at, id);
    CREATE INDEX conversation_items_changed ON conversation_items (sessionId, seq, id);
    CREATE INDEX conversation_items_by_key ON conversation_items (sessionId, key, id) WHERE key IS NOT NULL;

    -- How far the items of a session follow its events, and how many they are.
    CREATE TABLE conversation_heads (
      sessionId TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
      seq INTEGER NOT NULL,
      items INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE INDEX events_about_memory ON events (sessionId, seq) WHERE type = 'memory.changed';
  `,
};
