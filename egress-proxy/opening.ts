import { isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import type { EgressReason } from '../protocol/egress.ts';
import { type ClientHello, ClientHelloReader } from './client-hello.ts';
import { OPENING_MS } from './wire.ts';

/**
 * The first words of a client in a tunnel. `http`: they begin like a request; `other`: they are neither that nor a
 * ClientHello, or there are none in time.
 */
export type Opening =
  | { readonly kind: 'tls'; readonly hello: ClientHello; readonly bytes: Buffer }
  | { readonly kind: 'http'; readonly bytes: Buffer }
  | { readonly kind: 'other'; readonly why: string };

/** Why a connection is not carried on, although its host is allowed. */
export interface OpeningProblem {
  readonly reason: Extract<EgressReason, 'not_tls' | 'no_sni' | 'sni_mismatch' | 'ech'>;
  /** One sentence without a period. */
  readonly why: string;
  /** The name that was asked for instead. */
  readonly serverName?: string;
}

/**
 * Reads as much as it takes to know what the client speaks; `head` has arrived already. The stream is paused
 * afterwards. Null if the client has gone without a word.
 */
export function readOpening(
  stream: Duplex,
  head: Buffer,
  waitMs: number = OPENING_MS,
): Promise<Opening | null> {
  const { promise, resolve } = Promise.withResolvers<Opening | null>();
  const reader = new ClientHelloReader();
  const parts: Buffer[] = [];
  const finish = (opening: Opening | null): void => {
    clearTimeout(late);
    stream.off('data', take);
    stream.off('end', ended);
    stream.off('close', ended);
    // At once: the next bytes are not ours.
    stream.pause();
    resolve(opening);
  };
  const take = (bytes: Buffer): void => {
    if (parts.length === 0 && isUpperCaseLetter(bytes[0] ?? 0)) {
      finish({ kind: 'http', bytes });
      return;
    }
    parts.push(bytes);
    const progress = reader.push(bytes);
    if (progress.state === 'bad') finish({ kind: 'other', why: progress.why });
    if (progress.state === 'hello')
      finish({ kind: 'tls', hello: progress.hello, bytes: Buffer.concat(parts) });
  };
  const ended = (): void =>
    finish(parts.length === 0 ? null : { kind: 'other', why: 'the client stopped in the middle of it' });
  const late = setTimeout(
    () => finish({ kind: 'other', why: `the client did not send it within ${String(waitMs / 1000)} s` }),
    waitMs,
  );
  stream.on('data', take);
  stream.once('end', ended);
  stream.once('close', ended);
  if (head.length > 0) take(head);
  return promise;
}

/** What is wrong with the first words of a connection to `host`, if it may not be carried on; null otherwise. */
export function openingProblem(
  opening: Exclude<Opening, { kind: 'http' }>,
  host: string,
  { ech }: { readonly ech: boolean },
): OpeningProblem | null {
  if (opening.kind === 'other')
    return {
      reason: 'not_tls',
      why: `the rule is for TLS, and there was no valid ClientHello: ${opening.why}; \`tcp: true\` in the rule carries anything`,
    };
  const { serverName, encrypted } = opening.hello;
  if (encrypted && !ech)
    return {
      reason: 'ech',
      why: 'the name may be encrypted; turn Encrypted ClientHello off, or allow it in the rule with `ech: allow`',
    };
  // Clients name no address.
  if (serverName === null && isIP(host) !== 0) return null;
  if (serverName === null) return { reason: 'no_sni', why: 'the ClientHello names no server' };
  if (serverName !== host)
    return { reason: 'sni_mismatch', why: 'the ClientHello names another server', serverName };
  return null;
}

/** Fatal `access_denied`, which clients show by that name. The version is that of TLS 1.2, as in every record. */
export const ACCESS_DENIED = Buffer.from([21, 3, 3, 0, 2, 2, 49]);

function isUpperCaseLetter(byte: number): boolean {
  return byte >= 0x41 && byte <= 0x5a;
}
