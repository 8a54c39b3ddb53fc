import { closeSync, openSync, readdirSync, readlinkSync } from 'node:fs';

/** An open descriptor, as Linux shows it. */
export interface OpenDescriptor {
  readonly fd: number;
  /** As /proc shows it: `pipe:[123]`, `socket:[45]`, `anon_inode:[eventpoll]`, or a path. */
  readonly target: string;
}

/** Node reads certificates on another thread during startup. */
const CERTIFICATES = /\.(pem|crt|cer|cnf)$|^\/(etc\/(ssl|pki|ca-certificates)|usr\/(lib|share)\/)/;

/**
 * The descriptors above stderr that may be inherited from the process that started us: they would hold its locks and pipes open.
 * Call it before we open a file. Node's own descriptors are event queues, pipes with both ends in this process, and certificates.
 */
export function suspectedDescriptors(open: readonly OpenDescriptor[]): OpenDescriptor[] {
  const ends = new Map<string, number>();
  for (const { target } of open) ends.set(target, (ends.get(target) ?? 0) + 1);
  return open.filter(({ fd, target }) => {
    if (fd <= 2 || target === '/dev/null' || target.startsWith('anon_inode:')) return false;
    return !CERTIFICATES.test(target) && !(target.startsWith('pipe:') && ends.get(target) === 2);
  });
}

/**
 * The descriptors of `suspected` that still have the same target. A file that Node was reading then is closed by now, or its number
 * is reused, and closing that number would close a file of ours. Files of the home stay open: closing any descriptor of the lock
 * file would release the lock.
 */
export function inheritedDescriptors(
  suspected: readonly OpenDescriptor[],
  open: readonly OpenDescriptor[],
  home: string,
): number[] {
  const now = new Map(open.map(({ fd, target }) => [fd, target]));
  return suspected
    .filter(({ fd, target }) => now.get(fd) === target && !target.startsWith(`${home}/`))
    .map(({ fd }) => fd);
}

export function closeDescriptors(descriptors: readonly number[]): void {
  for (const fd of descriptors) {
    try {
      closeSync(fd);
    } catch {
      // It is closed already.
    }
  }
}

/** Nothing where there is no /proc. */
export function openDescriptors(): OpenDescriptor[] {
  let names: string[];
  try {
    names = readdirSync('/proc/self/fd');
  } catch {
    return [];
  }
  return names.flatMap((name) => {
    try {
      return [{ fd: Number(name), target: readlinkSync(`/proc/self/fd/${name}`) }];
    } catch {
      return []; // the descriptor of the listing itself
    }
  });
}

const MAX_ATTEMPTS = 50;

/**
 * Releases the terminal and the pipes of the process that started us. Afterwards 0, 1 and 2 are /dev/null: a file with one of these
 * numbers would receive what is written to the terminal.
 */
export function detachStdio(): void {
  const now = new Map(openDescriptors().map(({ fd, target }) => [fd, target]));
  for (const fd of [0, 1, 2]) {
    if (now.get(fd) === '/dev/null') continue;
    closeDescriptors([fd]);
    for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt += 1) {
      // The kernel assigns the lowest free number, unless another thread of Node got it first and closes it soon.
      const opened = openSync('/dev/null', 'r+');
      if (opened === fd) break;
      closeSync(opened);
    }
  }
}
