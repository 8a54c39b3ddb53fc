import { BlockList, isIPv4 } from 'node:net';
import { networkInterfaces } from 'node:os';

/** IANA registries of special-purpose addresses: ranges that are not globally reachable. */
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
  // A public address at which the host of a large cloud serves metadata and its agent.
  ['168.63.129.16', 32],
];
/** The only global range: mapped, NAT64, unique-local, link-local and multicast addresses are outside. */
const GLOBAL_IPV6: readonly [string, number] = ['2000::', 3];
const SPECIAL_IPV6: readonly (readonly [string, number])[] = [
  // Teredo, ORCHID, benchmarking and other IETF assignments.
  ['2001::', 23],
  ['2001:db8::', 32],
  // 6to4: an embedded IPv4 address.
  ['2002::', 16],
  ['3fff::', 20],
];

const special = new BlockList();
for (const [network, prefix] of SPECIAL_IPV4) special.addSubnet(network, prefix, 'ipv4');
for (const [network, prefix] of SPECIAL_IPV6) special.addSubnet(network, prefix, 'ipv6');
const global6 = new BlockList();
global6.addSubnet(...GLOBAL_IPV6, 'ipv6');
const hostLocal = new BlockList();
for (const [network, prefix] of [
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['224.0.0.0', 4],
  ['168.63.129.16', 32],
] as const)
  hostLocal.addSubnet(network, prefix, 'ipv4');
for (const [network, prefix] of [
  ['::', 96],
  ['64:ff9b::', 96],
  ['fe80::', 10],
  ['ff00::', 8],
] as const)
  hostLocal.addSubnet(network, prefix, 'ipv6');
/** Addresses of no machine, with which a system connects to itself. */
const unspecified = new BlockList();
unspecified.addSubnet('0.0.0.0', 8, 'ipv4');
unspecified.addAddress('::', 'ipv6');
unspecified.addSubnet('::ffff:0.0.0.0', 104, 'ipv6');

/** Whether the address names no machine: nobody may connect to it, whatever a rule says. */
export function isUnspecifiedAddress(address: string): boolean {
  return unspecified.check(address, isIPv4(address) ? 'ipv4' : 'ipv6');
}

/**
 * Whether the address is globally reachable and not one of `own`: this machine's addresses, with its other services.
 */
export function isPublicAddress(address: string, own: () => ReadonlySet<string> = ownAddresses): boolean {
  const special4 = isIPv4(address) && special.check(address, 'ipv4');
  const special6 = !isIPv4(address) && (!global6.check(address, 'ipv6') || special.check(address, 'ipv6'));
  // Listing the interfaces costs more than the rest of a decision, so it comes last.
  return !special4 && !special6 && !own().has(address);
}

/** Whether the address leads to this machine or to its nearest network alone: loopback, link-local (metadata among it), multicast. */
export function isHostLocalAddress(address: string, own: () => ReadonlySet<string> = ownAddresses): boolean {
  return hostLocal.check(address, isIPv4(address) ? 'ipv4' : 'ipv6') || own().has(address);
}

/** The current addresses of this machine's interfaces. */
export function ownAddresses(): Set<string> {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return new Set(all.map(({ address }) => address));
}
