import { closeSync, openSync, readSync, readdirSync, readlinkSync } from 'node:fs';
import { MAX_OPEN_PORTS, type OpenPorts } from '../../protocol/open-ports.ts';

/** The tables of the network namespace that this process shares with the agent. */
const TABLES = ['/proc/self/net/tcp', '/proc/self/net/tcp6'] as const;
/** The kernel lists listening sockets first, at about 150 bytes each. An agent can open any number. */
const MAX_BYTES = 2 ** 20;
const LISTENING = '0A';
const LINE = /^\s*\d+:\s+([0-9A-F]+):([0-9A-F]{4})\s+\S+\s+([0-9A-F]{2})\s+(?:\S+\s+){5}(\d+)\s/;
const OWN_SOCKET = /^socket:\[(\d+)\]$/;

/** Where other programs of this network namespace listen. Takes bounded time and memory. */
export function listOpenPorts(): OpenPorts {
  const own = ownSockets();
  const tables = TABLES.map((path) => readStart(path));
  return openPortsIn(
    tables.map(({ text }) => text),
    own,
    tables.every(({ isWhole }) => isWhole),
  );
}

/** The same for the text of the tables, without the sockets whose inodes are in `own`. */
export function openPortsIn(
  tables: readonly string[],
  own: ReadonlySet<string>,
  complete: boolean,
): OpenPorts {
  const found = new Map<string, { readonly address: string; readonly port: number }>();
  for (const table of tables) {
    for (const line of table.split('\n')) {
      const [, address = '', port = '', state, inode = ''] = LINE.exec(line) ?? [];
      if (state !== LISTENING || own.has(inode)) continue;
      const one = { address: addressOf(address), port: Number.parseInt(port, 16) };
      if (one.port > 0) found.set(`${one.address} ${one.port}`, one);
    }
  }
  const listed = [...found.values()].sort(
    (a, b) => a.port - b.port || (a.address < b.address ? -1 : a.address > b.address ? 1 : 0),
  );
  return { total: listed.length, complete, listed: listed.slice(0, MAX_OPEN_PORTS) };
}

/** Words of four bytes, each with its lowest byte first. */
function addressOf(hex: string): string {
  const bytes = Buffer.from(hex, 'hex');
  for (let at = 0; at + 4 <= bytes.length; at += 4) bytes.subarray(at, at + 4).reverse();
  if (bytes.length === 4) return bytes.join('.');
  const groups = Array.from({ length: bytes.length / 2 }, (_, at) => bytes.readUInt16BE(2 * at).toString(16));
  return new URL(`http://[${groups.join(':')}]`).hostname.slice(1, -1);
}

/** Inodes of the sockets of this process. */
function ownSockets(): Set<string> {
  const own = new Set<string>();
  for (const fd of readdirSync('/proc/self/fd')) {
    const inode = OWN_SOCKET.exec(linkOf(`/proc/self/fd/${fd}`))?.[1];
    if (inode !== undefined) own.add(inode);
  }
  return own;
}

/** Empty for a descriptor that was closed meanwhile. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

/** Whole lines from the beginning of a file of the kernel's. An absent one is empty: a machine may have no IPv6. */
function readStart(path: string): { readonly text: string; readonly isWhole: boolean } {
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch {
    return { text: '', isWhole: true };
  }
  try {
    const buffer = Buffer.alloc(MAX_BYTES);
    let filled = 0;
    for (;;) {
      const read = readSync(fd, buffer, filled, buffer.length - filled, null);
      filled += read;
      if (read === 0 || filled === buffer.length) break;
    }
    const text = buffer.toString('latin1', 0, filled);
    const isWhole = filled < buffer.length;
    return { text: isWhole ? text : text.slice(0, text.lastIndexOf('\n') + 1), isWhole };
  } finally {
    closeSync(fd);
  }
}
