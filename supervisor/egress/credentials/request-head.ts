import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { Credential } from '../../../protocol/credentials.ts';
import { type CredentialUse, PLACEHOLDER_MARK } from '../../../protocol/credential-presets.ts';
import { formatHost } from '../../../protocol/host-name.ts';
import { endToEnd, framingProblem, headerValues } from '../../../protocol/http-headers.ts';
import { CREDENTIAL_HEAD_BYTES } from '../../../egress-proxy/wire.ts';

const HTTPS_PORT = 443;

/** Headers by which services take a credential, whichever one is added: what the client sent in them is dropped. */
const CREDENTIAL_HEADERS: ReadonlySet<string> = new Set([
  ...['authorization', 'proxy-authorization', 'x-api-key', 'api-key', 'apikey', 'x-goog-api-key'],
  ...['x-auth-token', 'private-token', 'x-amz-security-token', 'cookie'],
]);
/** What would let a part of an answer come without the rest, or in a form that nobody here reads. */
const ANSWER_HEADERS: ReadonlySet<string> = new Set([
  ...['accept-encoding', 'range', 'if-range', 'te', 'host', 'trailer', 'x-http-method-override'],
]);
const METHODS: ReadonlySet<string> = new Set([
  ...['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'QUERY', 'PROPFIND', 'REPORT'],
]);

/** The head of a request, as the process that reads the sandbox says it. */
export interface RequestHead {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  /** Name and value in turn. */
  readonly rawHeaders: readonly string[];
}

/**
 * Whether the head can stand in a request at all. What a parser gives always can; a process that was taken over may
 * say anything.
 */
export function isWellFormed({ method, path, rawHeaders }: RequestHead): boolean {
  if (!/^[A-Z-]{1,32}$/.test(method) || !/^[\x21-\xff]{0,65536}$/.test(path)) return false;
  if (rawHeaders.length % 2 !== 0) return false;
  if (rawHeaders.reduce((sum, text) => sum + text.length, 0) > CREDENTIAL_HEAD_BYTES) return false;
  try {
    for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
      validateHeaderName(rawHeaders[at] ?? '');
      validateHeaderValue(rawHeaders[at] ?? '', rawHeaders[at + 1] ?? '');
    }
  } catch {
    return false;
  }
  return true;
}

/** How many bytes the body has; null if its end says so. */
export function bodyLength(head: RequestHead): number | null {
  if (headerValues(head, 'transfer-encoding').length > 0) return null;
  return Number(headerValues(head, 'content-length')[0] ?? 0);
}

export interface RefusedHead {
  readonly status: 400 | 403 | 405 | 417;
  readonly reason: 'bad_request' | 'placeholder';
  readonly why: string;
}

/** Why a request of the sandbox is not passed on; null if nothing speaks against it. */
export function refusedHead(head: RequestHead, credential: Credential): RefusedHead | null {
  const { rawHeaders, method, path } = head;
  const bad = (status: RefusedHead['status'], why: string): RefusedHead => ({
    status,
    reason: 'bad_request',
    why,
  });
  if (!METHODS.has(method)) return bad(405, 'its method is not passed on');
  if (!path.startsWith('/')) return bad(400, 'its target is not a path');
  const framing = framingProblem(head);
  if (framing !== null) return bad(400, framing);
  if (headerValues(head, 'upgrade').length > 0) return bad(400, 'a change of the protocol is not passed on');
  if (headerValues(head, 'expect').some((value) => value.toLowerCase() !== '100-continue'))
    return bad(417, 'its Expect header is not supported');
  const own = credential.placeholder;
  const foreign = [path, ...rawHeaders].some((text) => {
    const rest = text.replaceAll(own, '');
    return rest.includes(PLACEHOLDER_MARK);
  });
  if (foreign)
    return {
      status: 403,
      reason: 'placeholder',
      why: 'it has the placeholder of another credential: that one is served elsewhere',
    };
  return null;
}

/**
 * Headers for the server, name and value in turn: those of the client without what belongs to its connection, without
 * any credential, and with the real one. Null if the value cannot stand in a header.
 */
export function credentialHeaders(
  head: RequestHead,
  { as, host, port }: Credential,
  value: Buffer,
): string[] | null {
  const own = as.kind === 'header' ? as.header.toLowerCase() : null;
  const pairs: string[] = [];
  const kept = endToEnd(head.rawHeaders, []);
  for (let at = 0; at + 1 < kept.length; at += 2) {
    const name = kept[at] ?? '';
    // Some servers take an underscore for a dash.
    const plain = name.toLowerCase().replaceAll('_', '-');
    if (CREDENTIAL_HEADERS.has(plain) || ANSWER_HEADERS.has(plain) || plain === own) continue;
    pairs.push(name, kept[at + 1] ?? '');
  }
  const added = credentialHeader(as, value);
  if (added === null) return null;
  const target = formatHost(host, port === HTTPS_PORT ? null : port);
  return ['Host', target, ...pairs, ...framing(head), 'Accept-Encoding', 'identity', ...added];
}

/** The path for the server: with `as: query`, with the credential in place of the client's parameter. */
export function credentialPath(url: string, as: CredentialUse, value: Buffer): string {
  if (as.kind !== 'query') return url;
  const [path = '/', ...rest] = url.split('?');
  const kept = rest
    .join('?')
    .split('&')
    .filter((part) => part !== '' && nameOfParameter(part) !== as.parameter);
  return `${path}?${[...kept, `${as.parameter}=${encodeURIComponent(value.toString())}`].join('&')}`;
}

function nameOfParameter(part: string): string {
  const name = part.split('=', 1)[0] ?? '';
  try {
    return decodeURIComponent(name.replaceAll('+', ' '));
  } catch {
    return name;
  }
}

function credentialHeader(as: CredentialUse, value: Buffer): string[] | null {
  const text = value.toString('latin1');
  switch (as.kind) {
    case 'query':
      return [];
    case 'basic': {
      const pair = as.user === null ? value : Buffer.concat([Buffer.from(`${as.user}:`), value]);
      return ['Authorization', `Basic ${pair.toString('base64')}`];
    }
    case 'bearer':
      return isHeaderText(text) ? ['Authorization', `Bearer ${text}`] : null;
    case 'header':
      return isHeaderText(text) ? [as.header, text] : null;
  }
}

/** Visible ASCII, and spaces inside. */
function isHeaderText(text: string): boolean {
  return /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text);
}

function framing(head: RequestHead): string[] {
  if (bodyLength(head) === null) return ['Transfer-Encoding', 'chunked'];
  const hasLength = headerValues(head, 'content-length').length > 0;
  if (!hasLength && ['POST', 'PUT', 'PATCH'].includes(head.method)) return ['Content-Length', '0'];
  return [];
}
