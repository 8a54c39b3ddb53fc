import { type EgressEvent, EgressEventSchema } from '../../protocol/egress.ts';
import { formatHost } from '../../protocol/host-name.ts';
import { formatSize } from './quantity.ts';
import { pluralize, sanitizeLine } from './text.ts';

export interface FormattedEgressEvent {
  readonly what: string;
  /** What a person can do about it; null where there is nothing. */
  readonly next: string | null;
}

/** A decision about a connection as a person reads it; null for data of another shape. */
export function formatEgressEvent(sessionId: string, data: unknown): FormattedEgressEvent | null {
  const parsed = EgressEventSchema.safeParse(data);
  if (!parsed.success) return null;
  const event = parsed.data;
  const said = [`${event.decision} ${subject(event)}`];
  if (event.reason !== null) said.push(event.reason);
  if (event.decision === 'allowed' && event.rule !== null && event.from !== null)
    said.push(`rule ${sanitizeLine(event.rule)} (${event.from})`);
  if (event.bytesOut + event.bytesIn > 0)
    said.push(`${formatSize(event.bytesOut)} out, ${formatSize(event.bytesIn)} in`);
  if (event.count > 1) said.push(pluralize(event.count, 'time'));
  const next =
    event.allow === null
      ? null
      : `to allow it: holdfast policy allow ${sanitizeLine(sessionId)} '${sanitizeLine(event.allow)}'`;
  return { what: said.join(' · '), next };
}

/** Host and port, the method before them, and the address where it says more. */
function subject({ host, port, method, address }: EgressEvent): string {
  const place = host === '' ? 'a request' : host === '*' ? 'many hosts' : formatHost(host, port);
  const known = ['', '*'].includes(method) ? place : `${method} ${place}`;
  return sanitizeLine(address === null || address === host ? known : `${known} (${address})`);
}
