import type { Migration } from './index.ts';

/**
 * Prompts and outputs become contents. Prompts move here; outputs of earlier versions stay in events and in one file for
 * each stream, because events are never rewritten.
 */
export const contents: Migration = {
  version: 7,
  sql: `
    -- The bytes are in \`inline\`, or in the file \`artifact\` from \`start\` on. Removed contents have neither.
    CREATE TABLE contents (
      sessionId TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
      sha256 TEXT NOT NULL,
      bytes INTEGER NOT NULL,
      mediaType TEXT NOT NULL,
      inline BLOB,
      artifact TEXT,
      start INTEGER NOT NULL DEFAULT 0,
      removedAt INTEGER,
      PRIMARY KEY (sessionId, sha256)
    ) STRICT;
    CREATE INDEX contents_of_artifact ON contents (sessionId, artifact, start) WHERE artifact IS NOT NULL;

    ALTER TABLE turns ADD COLUMN inputSha256 TEXT NOT NULL DEFAULT '';
    ALTER TABLE turns ADD COLUMN resultSha256 TEXT;
    UPDATE turns SET inputSha256 = (SELECT sha256(bytes) FROM turn_inputs WHERE turnId = turns.id);
    INSERT OR IGNORE INTO contents (sessionId, sha256, bytes, mediaType, inline)
      SELECT sessionId, inputSha256, length(bytes),
        CASE kind WHEN 'handler' THEN 'application/json' ELSE 'text/plain; charset=utf-8' END, bytes
      FROM turns JOIN turn_inputs ON turn_inputs.turnId = turns.id
      WHERE inputBytes = length(bytes);
    INSERT OR IGNORE INTO contents (sessionId, sha256, bytes, mediaType, removedAt)
      SELECT sessionId, inputSha256, inputBytes, 'application/octet-stream', coalesce(endedAt, createdAt)
      FROM turns JOIN turn_inputs ON turn_inputs.turnId = turns.id
      WHERE inputBytes <> length(bytes);
    DROP TABLE turn_inputs;

    -- Each piece of a stream is a content. Of earlier versions it is in an event (\`seq\`) or, at its own offset, in a file.
    ALTER TABLE turn_pieces RENAME TO old_pieces;
    CREATE TABLE turn_pieces (
      turnId TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
      stream TEXT NOT NULL,
      start INTEGER NOT NULL,
      bytes INTEGER NOT NULL,
      sha256 TEXT,
      artifact TEXT,
      seq INTEGER,
      PRIMARY KEY (turnId, stream, start)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX turn_pieces_of_artifact ON turn_pieces (artifact) WHERE artifact IS NOT NULL;
    INSERT INTO turn_pieces (turnId, stream, start, bytes, artifact)
      SELECT turnId, stream, 0,
        CASE stream WHEN 'stdout' THEN stdoutBytes WHEN 'stderr' THEN stderrBytes ELSE resultBytes END, artifact
      FROM turn_streams JOIN turns ON turns.id = turnId WHERE artifact IS NOT NULL;
    INSERT OR IGNORE INTO turn_pieces (turnId, stream, start, bytes, seq)
      SELECT turnId, stream, start, bytes, seq FROM old_pieces
      WHERE NOT EXISTS (SELECT 1 FROM turn_streams
        WHERE turnId = old_pieces.turnId AND stream = old_pieces.stream AND artifact IS NOT NULL);
    DROP TABLE old_pieces;
    DROP TABLE turn_streams;
  `,
};
