import { BlockList, isIPv4 } from 'node:net';
import { networkInterfaces } from 'node:os';

/** From the IANA registries of special-purpose addresses: what is not reachable by everybody. */
const SPECIAL_IPV4: readonly (readonly [string, number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.88.99.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
  // Public by number, yet the host of a large cloud answers there: its metadata and its agent.
  ['168.63.129.16', 32],
];
/** Only these are anybody's at all: mapped, NAT64, unique-local, link-local and multicast ones lie outside. */
const GLOBAL_IPV6: readonly [string, number] = ['2000::', 3];
const SPECIAL_IPV6: readonly (readonly [string, number])[] = [
  // Teredo, ORCHID, benchmarks and other assignments of the IETF.
  ['2001::', 23],
  ['2001:db8::', 32],
  // 6to4: an IPv4 address in disguise.
  ['2002::', 16],
  ['3fff::', 20],
];

const special = new BlockList();
for (const [network, prefix] of SPECIAL_IPV4) special.addSubnet(network, prefix, 'ipv4');
for (const [network, prefix] of SPECIAL_IPV6) special.addSubnet(network, prefix, 'ipv6');
const global6 = new BlockList();
global6.addSubnet(...GLOBAL_IPV6, 'ipv6');

/** An address that everybody reaches, and that is not one of `own`: this machine's, behind which its other services are. */
export function isPublicAddress(address: string, own: () => ReadonlySet<string> = ownAddresses): boolean {
  const special4 = isIPv4(address) && special.check(address, 'ipv4');
  const special6 = !isIPv4(address) && (!global6.check(address, 'ipv6') || special.check(address, 'ipv6'));
  // Asking for all interfaces costs more than everything else about a decision, so it comes last.
  return !special4 && !special6 && !own().has(address);
}

/** Of this machine's interfaces, now. */
export function ownAddresses(): Set<string> {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return new Set(all.map(({ address }) => address));
}
