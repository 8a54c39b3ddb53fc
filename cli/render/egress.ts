import { type EgressEvent, EgressEventSchema } from '../../protocol/egress.ts';
import { showHost } from '../../protocol/host-name.ts';
import { size } from './quantity.ts';
import { count, visible } from './text.ts';

export interface EgressLines {
  readonly what: string;
  /** What a person can do about it; null where there is nothing. */
  readonly next: string | null;
}

/** A decision about a connection as a person reads it; null for data of another shape. */
export function egressLines(sessionId: string, data: unknown): EgressLines | null {
  const parsed = EgressEventSchema.safeParse(data);
  if (!parsed.success) return null;
  const event = parsed.data;
  const said = [`${event.decision} ${subject(event)}`];
  if (event.reason !== null) said.push(event.reason);
  if (event.decision === 'allowed' && event.rule !== null && event.from !== null)
    said.push(`rule ${visible(event.rule)} (${event.from})`);
  if (event.bytesOut + event.bytesIn > 0) said.push(`${size(event.bytesOut)} out, ${size(event.bytesIn)} in`);
  if (event.count > 1) said.push(count(event.count, 'time'));
  const next =
    event.allow === null
      ? null
      : `to allow it: holdfast policy allow ${visible(sessionId)} '${visible(event.allow)}'`;
  return { what: said.join(' · '), next };
}

/** Host and port, the method before them, and the address where it says more. */
function subject({ host, port, method, address }: EgressEvent): string {
  const place = host === '' ? 'a request' : host === '*' ? 'many hosts' : showHost(host, port);
  const known = ['', '*'].includes(method) ? place : `${method} ${place}`;
  return visible(address === null || address === host ? known : `${known} (${address})`);
}
