import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import { BINARY, type Content, TEXT } from '../../protocol/contents.ts';
import { markNamed } from './attachment-uploads.ts';
import type { Database } from './database.ts';

/**
 * Stores a content in the database, once per session. Call it in the transaction that stores what names the content, so
 * that neither exists without the other.
 */
export function insertContent(
  database: Database,
  sessionId: string,
  bytes: Uint8Array,
  mediaType: string = mediaTypeOf(bytes),
): Content {
  const sha256 = hash('sha256', bytes);
  markNamed(database, sessionId, sha256);
  // The same bytes may be in a file, which is removed earlier.
  database.run(
    `INSERT INTO contents (sessionId, sha256, bytes, mediaType, inline) VALUES (?, ?, ?, ?, ?)
     ON CONFLICT (sessionId, sha256)
     DO UPDATE SET inline = excluded.inline, artifact = NULL, start = 0, removedAt = NULL WHERE inline IS NULL`,
    sessionId,
    sha256,
    bytes.length,
    mediaType,
    bytes,
  );
  return { sha256, bytes: bytes.length, mediaType };
}

/** A partial character at either end makes the bytes binary: they are never altered to be readable. */
export function mediaTypeOf(bytes: Uint8Array): string {
  return isUtf8(bytes) ? TEXT : BINARY;
}
