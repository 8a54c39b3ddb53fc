import { isIPv4, isIPv6 } from 'node:net';
import { domainToASCII } from 'node:url';

/**
 * A host as it is compared, looked up and shown – the one form of it that there is: a name in lower-case ASCII without a
 * trailing dot, a dotted IPv4 address, or an IPv6 address in its shortest form without brackets.
 */
export interface CanonicalHost {
  readonly kind: 'name' | 'ipv4' | 'ipv6';
  readonly host: string;
}

export interface HostRejection {
  /** Why it is no host, one sentence without a period. Holds none of its text. */
  readonly refused: string;
}

const LONGEST_NAME = 253;
const LONGEST_LABEL = 63;
const LABEL = /^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?$/;
/** What some resolver somewhere would take for a number, and the name for an address. */
const NUMBER = /^(\d+|0x[0-9a-f]*)$/;

/**
 * Done once, before anything is decided. What a resolver or a web server might read in another way than we do is refused:
 * NUL, user info, percent signs, numbers written in unusual ways (`127.1`, `0x7f000001`), IPv6 that stands for an IPv4 address.
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
  // Node refuses leading zeroes, which others read as octal.
  if (isIPv4(name) && ascii === name) return { kind: 'ipv4', host: name };
  return { refused: 'the host is an address in an unusual notation' };
}

/** Names beyond ASCII become what is asked of a name server. Everything else only loses its capitals. */
function asciiName(text: string): string | null {
  let odd = false;
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    if (code <= 0x20 || code === 0x7f) return null;
    odd ||= code > 0x7f;
  }
  if (!odd) return text.toLowerCase();
  // domainToASCII would decode these, and stop at the first of some.
  if (/[%/?#@\\:[\]]/.test(text)) return null;
  const ascii = domainToASCII(text);
  return ascii === '' ? null : ascii;
}

function canonicalIpv6(text: string): CanonicalHost | HostRejection {
  const inner = text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text;
  // With a zone it names an interface of the machine that dials.
  if (!isIPv6(inner) || inner.includes('%')) return { refused: 'the host is not an address' };
  const host = new URL(`http://[${inner}]/`).hostname.slice(1, -1);
  if (/^::(ffff:)?[0-9a-f]+:[0-9a-f]+$/.test(host))
    return { refused: 'the host is an IPv4 address written as IPv6' };
  return { kind: 'ipv6', host };
}

/** `host:port`, or null for text that is not that. A port is decimal, without a sign or leading zeroes. */
export function splitAuthority(text: string): { readonly host: string; readonly port: number | null } | null {
  const match = /^(\[[^\]]*\]|[^:[\]]*)(?::([1-9]\d{0,4}))?$/.exec(text);
  if (match === null) return null;
  const port = match[2] === undefined ? null : Number(match[2]);
  if (port !== null && port > 65_535) return null;
  return { host: match[1] ?? '', port };
}

/** As people write it: IPv6 in brackets. */
export function formatHost(host: string, port?: number | null): string {
  const shown = host.includes(':') ? `[${host}]` : host;
  return port === undefined || port === null ? shown : `${shown}:${String(port)}`;
}
