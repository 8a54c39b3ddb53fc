import { z } from 'zod';

/** Listening sockets that are listed; others are counted. */
export const MAX_OPEN_PORTS = 64;

/** Where programs in a sandbox listen for TCP connections, by port. Our own listeners are not among them. */
export const OpenPortsSchema = z.object({
  total: z.number().int().nonnegative(),
  /** False: there were too many sockets to look at all. */
  complete: z.boolean(),
  listed: z
    .array(
      z.object({
        /** As people write it: `127.0.0.1`, `0.0.0.0` and `::` for all. */
        address: z.string().max(64),
        port: z.number().int().min(1).max(65_535),
      }),
    )
    .max(MAX_OPEN_PORTS),
});
export type OpenPorts = z.infer<typeof OpenPortsSchema>;

/** For people, in one line. */
export function formatOpenPorts(ports: OpenPorts | null): string {
  if (ports === null) return 'unknown: no sandbox ran';
  if (ports.total === 0) return 'nothing';
  const listed = ports.listed.map(({ address, port }) =>
    address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`,
  );
  const rest = ports.total - listed.length;
  return `${listed.join(', ')}${rest > 0 ? ` and ${rest} more` : ''}${ports.complete ? '' : ', and others'}`;
}
