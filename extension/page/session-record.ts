import { createPublicKey } from 'node:crypto';
import type { Envelope } from '../../protocol/manifest.ts';
import { readUnverified, verifyManifest } from '../../protocol/manifest-verification.ts';
import type { Connection } from '../connection/connection.ts';
import { MAX_RECORD_ROWS } from '../../webview/late-messages.ts';
import type { SessionManifest, SessionRecord } from '../../webview/late-messages.ts';
import { manifestFacts } from './manifest-facts.ts';

/** A manifest of the session as it is now, or the one that is kept with this id. */
export async function readManifest(
  connection: Pick<Connection, 'call'>,
  session: string,
  id?: string,
): Promise<Envelope> {
  return (await connection.call('manifest/show', { session, ...(id === undefined ? {} : { id }) })).envelope;
}

/** What a session may do and what it did, for its page. */
export async function readRecord(connection: Connection, session: string): Promise<SessionRecord> {
  const host = connection.of(session);
  const [{ policy }, manifest, { usage: snapshots }] = await Promise.all([
    host.call('policy/show', { session }),
    readVerified(connection, session),
    host.call('snapshot/list', { session, limit: 1 }),
  ]);
  return {
    rules: policy.rules
      .slice(0, MAX_RECORD_ROWS)
      .map(({ host, effect, from, tcp, ech }) => ({ host, effect, from, isUnread: tcp || ech })),
    snapshots,
    ...manifest,
  };
}

/** What a manifest says, and whether its signature holds. `id`: of one that is kept; by default one is made now. */
export async function readVerified(
  connection: Connection,
  session: string,
  id?: string,
): Promise<SessionManifest> {
  // The key of the host that signed: each has its own.
  const host = connection.of(session);
  const [envelope, { publicKey, keyId }] = await Promise.all([
    readManifest(host, session, id),
    host.call('manifest/key', {}),
  ]);
  const text = JSON.stringify(envelope);
  const verified = verifyManifest(text, createPublicKey(publicKey));
  const statement = verified.valid ? verified.statement : readUnverified(text);
  return {
    signature: verified.valid ? { keyId, why: null } : { keyId, why: verified.why },
    madeAt: statement?.predicate.madeAt ?? null,
    facts: statement === null ? [] : manifestFacts(statement.predicate),
    credentials: (statement?.predicate.credentials ?? []).map(({ name, host }) => ({ name, host })),
    hosts: (statement?.predicate.egress.listed ?? []).map(({ host, port, allowed, denied, failed }) => ({
      ...{ host, port, allowed, denied, failed },
    })),
  };
}
