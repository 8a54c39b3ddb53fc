import { STATUS_CODES } from 'node:http';
import type { EgressReason } from '../protocol/egress.ts';
import { formatHost } from '../protocol/host-name.ts';

/** The refusal that a client in the sandbox gets. */
export interface Refusal {
  readonly reason: EgressReason;
  /** One sentence without a period. Contains nothing from the client but the canonical host. */
  readonly why: string;
  readonly host: string;
  readonly port: number;
  /** The pattern that would allow it; null if none would. */
  readonly allow: string | null;
  readonly sessionId: string;
}

const STATUS: Record<EgressReason, number> = {
  no_rule: 403,
  other_port: 403,
  denied: 403,
  private_address: 403,
  bad_request: 400,
  not_resolved: 502,
  not_reached: 502,
  not_tls: 403,
  no_sni: 403,
  sni_mismatch: 403,
  ech: 403,
  too_many: 503,
  no_proxy: 503,
  placeholder: 403,
  no_secret: 401,
  limit: 429,
  echo: 502,
  unsafe_answer: 502,
  port_taken: 503,
};

export function refusalStatus({ reason }: Refusal): number {
  return STATUS[reason];
}

export function refusalHeaders(refusal: Refusal): Record<string, string> {
  const { reason, allow, sessionId } = refusal;
  return {
    'X-Holdfast-Egress': reason,
    ...(allow === null ? {} : { 'X-Holdfast-Allow': command(sessionId, allow) }),
  };
}

/** The body of a refused plain request, for people and programs. */
export function refusalText(refusal: Refusal): string {
  const { why, allow, sessionId } = refusal;
  const lines = [`Holdfast: no connection to ${targetOf(refusal)}: ${why}.`];
  if (allow !== null) lines.push(`To allow it: ${command(sessionId, allow)}`);
  return `${lines.join('\n')}\n`;
}

/** The response to a refused CONNECT. Clients show its reason phrase, not its body. */
export function connectRefusal(refusal: Refusal): string {
  const status = refusalStatus(refusal);
  const { reason, why, host, port, allow, sessionId } = refusal;
  const body = `${JSON.stringify({
    error: 'egress_denied',
    reason,
    why,
    host,
    port,
    allow: allow === null ? null : command(sessionId, allow),
  })}\n`;
  const headers = {
    'Content-Type': 'application/json',
    'Content-Length': String(Buffer.byteLength(body)),
    Connection: 'close',
    ...refusalHeaders(refusal),
  };
  const phrase = status === 403 ? `Holdfast: ${targetOf(refusal)} is not allowed, ${why}` : phraseOf(status);
  return head(status, phrase, headers) + body;
}

/** The response to a request that Node's parser could not read. */
export function unreadableRefusal(status: 400 | 408 | 431): string {
  const body = `Holdfast: ${phraseOf(status)}.\n`;
  return (
    head(status, phraseOf(status), {
      'Content-Type': 'text/plain; charset=utf-8',
      'Content-Length': String(Buffer.byteLength(body)),
      Connection: 'close',
      'X-Holdfast-Egress': 'bad_request',
    }) + body
  );
}

function head(status: number, phrase: string, headers: Record<string, string>): string {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${phrase}\r\n${lines.join('')}\r\n`;
}

function phraseOf(status: number): string {
  return STATUS_CODES[status] ?? 'Refused';
}

function targetOf({ host, port }: Refusal): string {
  return host === '' ? 'the requested host' : formatHost(host, port);
}

function command(sessionId: string, allow: string): string {
  return `holdfast policy allow ${sessionId} '${allow}'`;
}
