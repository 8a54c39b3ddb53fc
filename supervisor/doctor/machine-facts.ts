import { existsSync } from 'node:fs';
import { readdir, readFile, readlink, realpath, stat, statfs } from 'node:fs/promises';
import type { MachineFacts } from './machine-checks.ts';

export async function readMachineFacts(home: string): Promise<MachineFacts> {
  const [status, disk, inotify, mounts] = await Promise.all([
    stat(home),
    diskFacts(home),
    inotifyFacts(),
    // Only Linux has it.
    readFile('/proc/self/mountinfo', 'utf8').catch(() => null),
  ]);
  return {
    node: process.versions.node,
    home: { path: home, mode: status.mode, mine: status.uid === (process.getuid?.() ?? status.uid) },
    disk,
    inotify,
    projectQuotas: mounts === null ? null : hasProjectQuotas(mounts, await realpath(home)),
    vsock: existsSync('/dev/vsock'),
  };
}

/** Whether the file system at `path` is mounted with project quotas. `mounts`: /proc/self/mountinfo. `path`: without links. */
export function hasProjectQuotas(mounts: string, path: string): boolean {
  let deepest = '';
  let found = false;
  for (const line of mounts.split('\n')) {
    // See proc_pid_mountinfo(5): the mount point is the fifth field; after a lone dash come type, source and options.
    const [place = '', rest = ''] = line.split(' - ');
    const point = unescapeOctal(place.split(' ')[4] ?? '');
    const isAbove = point !== '' && (path === point || path.startsWith(point === '/' ? point : `${point}/`));
    // A later mount at the same place hides the earlier one.
    if (!isAbove || point.length < deepest.length) continue;
    deepest = point;
    const options = (rest.split(' ')[2] ?? '').split(',');
    found = ['prjquota', 'pquota'].some((option) => options.includes(option));
  }
  return found;
}

function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 8)));
}

async function diskFacts(home: string): Promise<MachineFacts['disk']> {
  try {
    const { type, bavail, blocks, bsize, files, ffree } = await statfs(home);
    // The magic number may be negative.
    return {
      type: type >>> 0,
      freeBytes: bavail * bsize,
      totalBytes: blocks * bsize,
      freeInodes: ffree,
      inodes: files,
    };
  } catch {
    return null; // not every file system supports it
  }
}

async function inotifyFacts(): Promise<MachineFacts['inotify']> {
  try {
    const [instances, watches] = await Promise.all(
      ['max_user_instances', 'max_user_watches'].map(async (name) =>
        Number(await readFile(`/proc/sys/fs/inotify/${name}`, 'utf8')),
      ),
    );
    if (instances === undefined || watches === undefined) return null;
    return { instances, watches, used: await ownInotifyInstances() };
  } catch {
    return null; // not Linux
  }
}

/** Inotify instances of all readable processes of this user. */
async function ownInotifyInstances(): Promise<number> {
  const uid = process.getuid?.();
  let used = 0;
  for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    try {
      if ((await stat(`/proc/${pid}`)).uid !== uid) continue;
      for (const fd of await readdir(`/proc/${pid}/fd`)) {
        if ((await readlink(`/proc/${pid}/fd/${fd}`)) === 'anon_inode:inotify') used += 1;
      }
    } catch {
      // The process ended, closed the descriptor, or is not readable.
    }
  }
  return used;
}
