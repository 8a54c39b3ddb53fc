import { closeSync, openSync, readdirSync, readlinkSync } from 'node:fs';

/** What may be told of an open descriptor on Linux. */
export interface OpenDescriptor {
  readonly fd: number;
  /** As /proc shows it: `pipe:[123]`, `socket:[45]`, `anon_inode:[eventpoll]`, or a path. */
  readonly target: string;
}

/**
 * Which descriptors above stderr came from whoever started us: they would hold that one's locks, pipes and mounts for as long as
 * we live. Node's own at this moment are event queues and pipes of which both ends are here.
 */
export function inheritedDescriptors(open: readonly OpenDescriptor[]): number[] {
  const ends = new Map<string, number>();
  for (const { target } of open) ends.set(target, (ends.get(target) ?? 0) + 1);
  return open
    .filter(({ fd, target }) => {
      if (fd <= 2 || target === '/dev/null' || target.startsWith('anon_inode:')) return false;
      return !(target.startsWith('pipe:') && ends.get(target) === 2);
    })
    .map(({ fd }) => fd);
}

/** Must run before anything of ours opens a file. Does nothing where there is no /proc. */
export function closeInherited(): number[] {
  const closed: number[] = [];
  for (const fd of inheritedDescriptors(openDescriptors())) {
    try {
      closeSync(fd);
      closed.push(fd);
    } catch {
      // The descriptor that listed the folder is gone by now.
    }
  }
  return closed;
}

function openDescriptors(): OpenDescriptor[] {
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

/** Gives back terminal and pipes of the starter, once there is a log to speak to. */
export function detachStdio(): void {
  for (const fd of [0, 1, 2]) {
    try {
      closeSync(fd);
    } catch {
      // It was closed already; the open below takes the lowest free number all the same.
    }
    const opened = openSync('/dev/null', fd === 0 ? 'r' : 'w');
    if (opened !== fd) closeSync(opened);
  }
}
