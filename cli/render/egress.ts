import { type EgressEvent, EgressEventSchema } from '../../protocol/egress.ts';
import { formatHost } from '../../protocol/host-name.ts';
import { formatSize } from './quantity.ts';
import { pluralize, sanitizeLine } from './text.ts';

export interface FormattedEgressEvent {
  readonly what: string;
  /** The words of the command that would allow the connection; null if there is none. */
  readonly next: string | null;
}

/** Formats a decision about a connection. Null if the data is not that of an egress event. */
export function formatEgressEvent(sessionId: string, data: unknown): FormattedEgressEvent | null {
  const parsed = EgressEventSchema.safeParse(data);
  if (!parsed.success) return null;
  const event = parsed.data;
  const parts = [`${event.decision} ${subject(event)}`];
  if (event.reason !== null) parts.push(event.reason);
  if (event.serverName !== undefined) parts.push(`asked for ${sanitizeLine(event.serverName)}`);
  if (event.decision === 'allowed' && event.rule !== null && event.from !== null)
    parts.push(`rule ${sanitizeLine(event.rule)} (${event.from})`);
  if (event.credential !== undefined) parts.push(`credential ${sanitizeLine(event.credential)}`);
  if (event.bytesOut + event.bytesIn > 0)
    parts.push(`${formatSize(event.bytesOut)} out, ${formatSize(event.bytesIn)} in`);
  if (event.count > 1) parts.push(pluralize(event.count, 'time'));
  const wanted = wantedRule(event);
  const next = wanted === null ? null : `policy allow ${sanitizeLine(sessionId)} ${wanted}`;
  return { what: parts.join(' · '), next };
}

/** The host of the rule that would allow the connection, with its option; null if none would. */
function wantedRule({ allow, host, port, reason }: EgressEvent): string | null {
  if (allow !== null) return `'${sanitizeLine(allow)}'`;
  const option = reason === 'not_tls' ? '--tcp' : reason === 'ech' ? '--ech' : null;
  if (option === null || host === '' || host === '*') return null;
  return `'${sanitizeLine(formatHost(host, port))}' ${option}`;
}

/** `METHOD host:port (address)`, without what is unknown or the same. */
function subject({ host, port, method, address }: EgressEvent): string {
  const place = host === '' ? 'a request' : host === '*' ? 'many hosts' : formatHost(host, port);
  const known = ['', '*'].includes(method) ? place : `${method} ${place}`;
  return sanitizeLine(address === null || address === host ? known : `${known} (${address})`);
}
