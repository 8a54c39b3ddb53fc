import { STATUS_CODES } from 'node:http';
import type { EgressReason } from '../protocol/egress.ts';

/** What the sandbox gets instead of an answer. Nothing in it comes from this machine or from the request. */
export interface EndpointRefusal {
  readonly status: number;
  readonly reason: EgressReason;
  /** One sentence without a period. */
  readonly why: string;
}

/** In the form in which the clients of model services look for a message. */
export function refusalBody({ reason, why }: Pick<EndpointRefusal, 'reason' | 'why'>): string {
  return `${JSON.stringify({ type: 'error', error: { type: `holdfast_${reason}`, message: `Holdfast: ${why}.` } })}\n`;
}

export function refusalHead(refusal: EndpointRefusal, body: string): Record<string, string> {
  return {
    'Content-Type': 'application/json',
    'Content-Length': String(Buffer.byteLength(body)),
    'X-Holdfast-Egress': refusal.reason,
    ...(refusal.status === 429 ? { 'Retry-After': '5' } : {}),
    Connection: 'close',
  };
}

/** For a connection on which nothing can be answered in order any more. */
export function rawRefusal(status: 400 | 405 | 408 | 431): string {
  const body = refusalBody({ reason: 'bad_request', why: 'the request could not be read' });
  const lines = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Refused'}`,
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(body)}`,
    'X-Holdfast-Egress: bad_request',
    'Connection: close',
  ];
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}
