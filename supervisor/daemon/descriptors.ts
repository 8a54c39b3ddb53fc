import { closeSync, openSync, readdirSync, readlinkSync } from 'node:fs';

/** What may be told of an open descriptor on Linux. */
export interface OpenDescriptor {
  readonly fd: number;
  /** As /proc shows it: `pipe:[123]`, `socket:[45]`, `anon_inode:[eventpoll]`, or a path. */
  readonly target: string;
}

/** Node reads certificates on a thread of its own while we start. */
const CERTIFICATES = /\.(pem|crt|cer|cnf)$|^\/(etc\/(ssl|pki|ca-certificates)|usr\/(lib|share)\/)/;

/**
 * Which descriptors above stderr may have come from whoever started us: they would hold that one's locks and pipes for as long
 * as we live. To be asked before anything of ours opens a file. Node's own are event queues, pipes of which both ends are
 * here, and certificates.
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
 * Of those suspected at the start, the ones that are still the same later. One that Node was reading then is closed by now, or
 * its number means something else: closing such a number under another thread would take a file of ours away. What lies in the
 * home stays too: closing any descriptor of the lock's file lets go of the lock.
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
      // Closed already.
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
      return []; // closed meanwhile: the listing's own
    }
  });
}

const TRIES = 50;

/**
 * Gives back terminal and pipes of the starter, once there is a log to speak to. All three numbers must mean /dev/null
 * afterwards: a file that took one of them would get what is written to the terminal.
 */
export function detachStdio(): void {
  const now = new Map(openDescriptors().map(({ fd, target }) => [fd, target]));
  for (const fd of [0, 1, 2]) {
    if (now.get(fd) === '/dev/null') continue;
    closeDescriptors([fd]);
    for (let tries = 1; tries <= TRIES; tries += 1) {
      // The lowest free number is taken, unless another thread of Node was faster: it gives it back soon.
      const opened = openSync('/dev/null', 'r+');
      if (opened === fd) break;
      closeSync(opened);
    }
  }
}
