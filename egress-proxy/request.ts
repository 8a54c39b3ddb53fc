import type { IncomingMessage } from 'node:http';
import { canonicalizeHost, formatHost, splitAuthority } from '../protocol/host-name.ts';
import { endToEnd, framingProblem, headerValues } from '../protocol/http-headers.ts';

/** The destination of a request, in canonical form. */
export interface Target {
  readonly host: string;
  readonly port: number;
}

export interface PlainTarget extends Target {
  /** Path and query. */
  readonly path: string;
}

export interface BadRequest {
  readonly bad: string;
}

const HTTP_PORT = 80;
const LARGEST_PORT = 65_535;

/** The target of `CONNECT host:port`; Node has parsed the rest. */
export function connectTarget(request: IncomingMessage): Target | BadRequest {
  // One side could read the bytes of a body as a request, the other as its content.
  if (request.headers['content-length'] !== undefined || request.headers['transfer-encoding'] !== undefined)
    return { bad: 'a CONNECT request has no body' };
  const target = authority(request.url ?? '', null);
  if ('bad' in target) return target;
  return target;
}

/**
 * The target of a request in absolute form, `GET http://host/path`. Its Host header must agree, because the server
 * would use that one.
 */
export function plainTarget(request: IncomingMessage): PlainTarget | BadRequest {
  const match = /^http:\/\/([^/?#]*)([^#]*)$/i.exec(request.url ?? '');
  if (match === null) {
    return { bad: 'this is a proxy: it takes CONNECT host:port, or requests for http://host/path' };
  }
  const target = authority(match[1] ?? '', HTTP_PORT);
  if ('bad' in target) return target;
  const rest = match[2] ?? '';
  return checked(request, target, rest.startsWith('/') ? rest : `/${rest}`);
}

/**
 * A request in origin form, `GET /path`, in a tunnel to `target`. Its Host header must name the target: the server
 * would use that one.
 */
export function tunnelledTarget(request: IncomingMessage, target: Target): PlainTarget | BadRequest {
  const path = request.url ?? '';
  if (!/^\/[^#]*$/.test(path)) return { bad: 'a request in a tunnel names a path' };
  return checked(request, target, path);
}

/** What the request says about its target and its body must be what everybody would read. */
function checked(request: IncomingMessage, target: Target, path: string): PlainTarget | BadRequest {
  const framing = framingProblem(request);
  if (framing !== null) return { bad: framing };
  const hosts = headerValues(request, 'host');
  const [named] = hosts;
  if (hosts.length > 1) return { bad: 'it has more than one Host header' };
  if (named === undefined && request.httpVersion !== '1.0') return { bad: 'it has no Host header' };
  if (named !== undefined) {
    const said = authority(named, HTTP_PORT);
    if ('bad' in said || said.host !== target.host || said.port !== target.port)
      return { bad: 'its Host header names another server' };
  }
  const { expect } = request.headers;
  if (expect !== undefined && expect.toLowerCase() !== '100-continue')
    return { bad: 'its Expect header is not supported' };
  return { ...target, path };
}

function authority(text: string, usualPort: number | null): Target | BadRequest {
  const parts = splitAuthority(text);
  const port = parts?.port ?? usualPort;
  if (parts === null || port === null || port > LARGEST_PORT) return { bad: 'the target is not host:port' };
  const canonical = canonicalizeHost(parts.host);
  if ('refused' in canonical) return { bad: canonical.refused };
  return { host: canonical.host, port };
}

/** Headers for the server, name and value in turn: those of the client without its hop-by-hop headers. */
export function forwardedHeaders(request: IncomingMessage, target: Target): string[] {
  const host = formatHost(target.host, target.port === HTTP_PORT ? null : target.port);
  const headers = ['Host', host, ...endToEnd(request.rawHeaders, ['host'])];
  if (request.headers['transfer-encoding'] !== undefined) headers.push('Transfer-Encoding', 'chunked');
  else if (
    request.headers['content-length'] === undefined &&
    ['POST', 'PUT', 'PATCH'].includes(request.method ?? '')
  )
    headers.push('Content-Length', '0');
  return [...headers, 'Connection', 'close'];
}

/** Headers for the client. One request per connection: nothing after it can be taken for another response. */
export function returnedHeaders(response: IncomingMessage): string[] {
  return [...endToEnd(response.rawHeaders, []), 'Connection', 'close'];
}
