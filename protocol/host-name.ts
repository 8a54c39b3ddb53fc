import { isIPv4, isIPv6 } from 'node:net';
import { domainToASCII } from 'node:url';

/**
 * The canonical form of a host, which is used to compare, resolve and print it: a name in lower-case ASCII without a
 * trailing dot, a dotted IPv4 address, or an IPv6 address in its shortest form without brackets.
 */
export interface CanonicalHost {
  readonly kind: 'name' | 'ipv4' | 'ipv6';
  readonly host: string;
}

export interface HostRejection {
  /** Why the text is not a valid host: one sentence without a period that does not quote the text. */
  readonly refused: string;
}

const LONGEST_NAME = 253;
const LONGEST_LABEL = 63;
const LABEL = /^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?$/;
/** A last label that some resolvers parse as a number, and then the whole name as an address. */
const NUMBER = /^(\d+|0x[0-9a-f]*)$/;

/**
 * Canonicalizes a host once, before any decision. Rejects whatever a resolver or a web server might interpret in
 * another way: NUL, user info, percent signs, unusual notations of addresses (`127.1`, `0x7f000001`), IPv4 addresses
 * written as IPv6.
 */
export function canonicalizeHost(text: string): CanonicalHost | HostRejection {
  if (text.length === 0) return { refused: 'the host is empty' };
  if (text.length > 4 * LONGEST_NAME) return { refused: 'the host is longer than a name can be' };
  if (text.startsWith('[') || text.includes(':')) return canonicalIpv6(text);
  const ascii = asciiName(text);
  if (ascii === null) return { refused: 'the host has characters that no name has' };
  const name = ascii.endsWith('.') ? ascii.slice(0, -1) : ascii;
  if (name.length > LONGEST_NAME) return { refused: 'the host is longer than a name can be' };
  const labels = name.split('.');
  if (labels.some((label) => label.length > LONGEST_LABEL || !LABEL.test(label)))
    return { refused: 'the host has characters that no name has' };
  if (!NUMBER.test(labels.at(-1) ?? '')) return { kind: 'name', host: name };
  // isIPv4 rejects leading zeroes, which some programs interpret as octal.
  if (isIPv4(name) && ascii === name) return { kind: 'ipv4', host: name };
  return { refused: 'the host is an address in an unusual notation' };
}

/** Converts a name with non-ASCII characters to Punycode, and any other to lower case. */
function asciiName(text: string): string | null {
  let odd = false;
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    if (code <= 0x20 || code === 0x7f) return null;
    odd ||= code > 0x7f;
  }
  if (!odd) return text.toLowerCase();
  // domainToASCII would decode these characters, or stop at them.
  if (/[%/?#@\\:[\]]/.test(text)) return null;
  const ascii = domainToASCII(text);
  return ascii === '' ? null : ascii;
}

function canonicalIpv6(text: string): CanonicalHost | HostRejection {
  const inner = text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text;
  // A zone id would name a network interface of the machine that connects.
  if (!isIPv6(inner) || inner.includes('%')) return { refused: 'the host is not an address' };
  const host = new URL(`http://[${inner}]/`).hostname.slice(1, -1);
  if (/^::(ffff:)?[0-9a-f]+:[0-9a-f]+$/.test(host))
    return { refused: 'the host is an IPv4 address written as IPv6' };
  return { kind: 'ipv6', host };
}

/** Splits `host:port`. Null if the text is something else. A port is decimal, without a sign or leading zeroes. */
export function splitAuthority(text: string): { readonly host: string; readonly port: number | null } | null {
  const match = /^(\[[^\]]*\]|[^:[\]]*)(?::([1-9]\d{0,4}))?$/.exec(text);
  if (match === null) return null;
  const port = match[2] === undefined ? null : Number(match[2]);
  if (port !== null && port > 65_535) return null;
  return { host: match[1] ?? '', port };
}

/** Formats a host with an optional port, IPv6 in brackets. */
export function formatHost(host: string, port?: number | null): string {
  const shown = host.includes(':') ? `[${host}]` : host;
  return port === undefined || port === null ? shown : `${shown}:${String(port)}`;
}
