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
/** What even a name that may be in a private network does not lead to. */
const offLimits = new BlockList();
for (const [network, prefix] of [
  ['0.0.0.0', 8],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['192.0.0.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
  // Metadata services of clouds outside the link-local range; the rest of 100.64.0.0/10 is used in private networks.
  ['100.100.100.200', 32],
  ['168.63.129.16', 32],
] as const)
  offLimits.addSubnet(network, prefix, 'ipv4');
for (const [network, prefix] of [
  ['::', 96],
  // NAT64, Teredo, 6to4: an embedded IPv4 address, which may be any of those above.
  ['64:ff9b::', 96],
  ['64:ff9b:1::', 48],
  ['2001::', 32],
  ['2002::', 16],
  // Metadata services among the unique-local addresses.
  ['fd00:ec2::', 32],
  ['fd00:42::42', 128],
  ['fd20:ce::254', 128],
  ['fe80::', 10],
  ['ff00::', 8],
] as const)
  offLimits.addSubnet(network, prefix, 'ipv6');
/** Asked for IPv6 alone: it holds every IPv4 address too. An own address in this form would not be recognized. */
const mapped = new BlockList();
mapped.addSubnet('::ffff:0.0.0.0', 96, 'ipv6');
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

/**
 * Whether the address leads to this machine, its nearest network or a metadata service (loopback, link-local, multicast, those of
 * clouds), or stands for another address, or for none: a name that may be in a private network does not lead there.
 */
export function isOffLimitsAddress(address: string, own: () => ReadonlySet<string> = ownAddresses): boolean {
  const is4 = isIPv4(address);
  return (
    offLimits.check(address, is4 ? 'ipv4' : 'ipv6') ||
    (!is4 && mapped.check(address, 'ipv6')) ||
    own().has(address)
  );
}

/** The current addresses of this machine's interfaces. */
export function ownAddresses(): Set<string> {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return new Set(all.map(({ address }) => address));
}
