import type { Migration } from './index.ts';

/** Times are ms since 1970; flags are 0 or 1; JSON is text. A column has the name of its field in the row. */
export const firstTables: Migration = {
  version: 1,
  sql: `
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    INSERT INTO counters VALUES ('epoch', 0);

    CREATE TABLE sessions (
      id TEXT NOT NULL PRIMARY KEY,
      name TEXT NOT NULL,
      profile TEXT NOT NULL,
      status TEXT NOT NULL,
      persistent INTEGER NOT NULL,
      throwaway INTEGER NOT NULL,
      backing TEXT NOT NULL,
      uid INTEGER NOT NULL,
      gid INTEGER NOT NULL,
      generation INTEGER NOT NULL,
      codeVersion INTEGER,
      createdAt INTEGER NOT NULL,
      lastActiveAt INTEGER NOT NULL,
      statusSince INTEGER NOT NULL,
      expiresAt INTEGER,
      deletedAt INTEGER,
      pinned INTEGER NOT NULL,
      starred INTEGER NOT NULL,
      archived INTEGER NOT NULL,
      tags TEXT NOT NULL,
      model TEXT,
      about TEXT,
      workspaceBytes INTEGER
    ) STRICT;
    CREATE UNIQUE INDEX session_names ON sessions (profile, name) WHERE status <> 'deleted';
    CREATE INDEX session_recency ON sessions (lastActiveAt DESC, id);
    CREATE INDEX session_uids ON sessions (uid);

    CREATE TABLE turns (
      ordinal INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE,
      sessionId TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
      status TEXT NOT NULL,
      kind TEXT NOT NULL,
      createdAt INTEGER NOT NULL,
      startedAt INTEGER,
      endedAt INTEGER,
      timeoutMs INTEGER NOT NULL,
      dispatchCase TEXT,
      reused INTEGER,
      codeVersion INTEGER,
      generation INTEGER,
      inputBytes INTEGER NOT NULL,
      output TEXT,
      outputArtifact INTEGER NOT NULL,
      exitCode INTEGER,
      error TEXT,
      stdoutBytes INTEGER NOT NULL,
      stderrBytes INTEGER NOT NULL,
      resultBytes INTEGER NOT NULL,
      launchedAt INTEGER,
      dispatchMs REAL,
      queuedMs REAL,
      turnMs REAL,
      workerStartMs REAL,
      workerId TEXT,
      workerReused INTEGER,
      cancelRequested INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX turns_of_session ON turns (sessionId, ordinal);
    CREATE INDEX turns_unfinished ON turns (sessionId, status, ordinal) WHERE status IN ('queued', 'running');

    CREATE TABLE turn_inputs (
      turnId TEXT NOT NULL PRIMARY KEY REFERENCES turns (id) ON DELETE CASCADE,
      bytes BLOB NOT NULL
    ) STRICT;

    -- How far each stream is stored inside events, and whether it has moved to an artifact.
    CREATE TABLE turn_streams (
      turnId TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
      stream TEXT NOT NULL,
      inlineBytes INTEGER NOT NULL,
      artifact TEXT,
      PRIMARY KEY (turnId, stream)
    ) STRICT, WITHOUT ROWID;
    -- Which event holds which piece of a stream.
    CREATE TABLE turn_pieces (
      turnId TEXT NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
      stream TEXT NOT NULL,
      start INTEGER NOT NULL,
      bytes INTEGER NOT NULL,
      seq INTEGER NOT NULL,
      PRIMARY KEY (turnId, stream, start)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE profiles (
      name TEXT NOT NULL PRIMARY KEY,
      version INTEGER NOT NULL,
      deployedAt INTEGER NOT NULL,
      source TEXT NOT NULL,
      config TEXT NOT NULL,
      sourceHash TEXT NOT NULL,
      files INTEGER NOT NULL,
      bytes INTEGER NOT NULL,
      image TEXT NOT NULL
    ) STRICT;
    -- Outlives the profile: a version number is never given to other code.
    CREATE TABLE profile_versions (
      profile TEXT NOT NULL,
      version INTEGER NOT NULL,
      deployedAt INTEGER NOT NULL,
      removed INTEGER NOT NULL,
      PRIMARY KEY (profile, version)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE operations (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      opId TEXT UNIQUE,
      kind TEXT NOT NULL,
      sessionId TEXT,
      state TEXT NOT NULL,
      step TEXT NOT NULL,
      data TEXT NOT NULL,
      result TEXT,
      error TEXT,
      createdAt INTEGER NOT NULL,
      updatedAt INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX operations_by_state ON operations (state, updatedAt);

    -- One page per appended event: nothing but the key is indexed.
    CREATE TABLE events (
      sessionId TEXT NOT NULL,
      seq INTEGER NOT NULL,
      at INTEGER NOT NULL,
      type TEXT NOT NULL,
      data TEXT NOT NULL,
      prevHash TEXT NOT NULL,
      hash TEXT NOT NULL,
      PRIMARY KEY (sessionId, seq)
    ) STRICT, WITHOUT ROWID;
  `,
};
