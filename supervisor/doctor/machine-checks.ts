import type { Check } from '../../protocol/entities.ts';
import { ok, problem, warning } from './engine-checks.ts';

/** Plain facts of this machine; null where they cannot be found out. */
export interface MachineFacts {
  readonly node: string;
  readonly home: { readonly path: string; readonly mode: number; readonly mine: boolean };
  readonly disk: {
    /** `statfs` magic number. */
    readonly type: number;
    readonly freeBytes: number;
    readonly totalBytes: number;
    readonly freeInodes: number;
    readonly inodes: number;
  } | null;
  readonly inotify: { readonly instances: number; readonly watches: number; readonly used: number } | null;
  /** There are sockets between a hypervisor and its machines. */
  readonly vsock: boolean;
}

const GIB = 2 ** 30;
const NETWORK: Readonly<Record<number, string>> = {
  0x6969: 'NFS',
  0x517b: 'SMB',
  0xff534d42: 'CIFS',
  0xfe534d42: 'SMB',
  0x00c36400: 'Ceph',
  0x5346414f: 'AFS',
  0x0bd00bd0: 'Lustre',
  0x01021997: '9p',
};
const TMPFS = 0x01021994;
const OVERLAY = 0x794c7630;
const FUSE = 0x65735546;
/** A sandbox needs one instance for its watches, and some for the programs in it. */
const FEW_INSTANCES = 16;
const FEW_WATCHES = 65_536;

export function machineChecks(facts: MachineFacts): Check[] {
  return [
    nodeCheck(facts.node),
    permissionCheck(facts.home),
    ...diskChecks(facts.disk),
    ...inotifyCheck(facts.inotify),
    ...vsockCheck(facts.vsock),
  ];
}

/** Whether a sandbox can open one is up to the engine's seccomp profile, which cannot be read; so the machine is told of. */
function vsockCheck(vsock: boolean): Check[] {
  if (!vsock) return [];
  return [
    warning(
      'hypervisor',
      'AF_VSOCK sockets are there, which belong to no network namespace: where the engine lets sandboxes open them, they reach services of the hypervisor or of virtual machines, past every rule of egress',
      'unload the kernel modules of vsock if nothing needs them',
    ),
  ];
}

function nodeCheck(version: string): Check {
  return Number(version.split('.')[0]) >= 24
    ? ok('node', version)
    : problem('node', `${version} is too old`, 'use Node 24 or newer');
}

function permissionCheck({ path, mode, mine }: MachineFacts['home']): Check {
  if (!mine)
    return problem(
      'home',
      `${path} belongs to another user`,
      'name a directory of your own in HOLDFAST_HOME',
    );
  const others = mode & 0o077;
  if (others === 0) return ok('home', `${path}, yours alone`);
  return problem(
    'home',
    `${path} can be entered by others (mode ${(mode & 0o777).toString(8)})`,
    `run: chmod 700 ${path}`,
  );
}

function diskChecks(disk: MachineFacts['disk']): Check[] {
  if (disk === null) return [warning('disk', 'the file system of the home does not tell about itself', null)];
  return [spaceCheck(disk), fileSystemCheck(disk.type)];
}

function spaceCheck({ freeBytes, totalBytes, freeInodes, inodes }: NonNullable<MachineFacts['disk']>): Check {
  const found = `${(freeBytes / GIB).toFixed(1)} GiB of ${(totalBytes / GIB).toFixed(1)} GiB free`;
  const next = 'free some: `holdfast gc`, or delete sessions you no longer need';
  if (freeBytes < GIB) return problem('disk space', found, next);
  if (inodes > 0 && freeInodes / inodes < 0.02)
    return problem('disk space', `${found}, but nearly no inodes`, next);
  if (freeBytes < 5 * GIB) return warning('disk space', found, next);
  return ok('disk space', found);
}

function fileSystemCheck(type: number): Check {
  const network = NETWORK[type];
  if (network !== undefined) {
    return warning(
      'file system',
      `the home lies on ${network}: locks and durable writes may not hold there`,
      'name a local directory in HOLDFAST_HOME',
    );
  }
  switch (type) {
    case TMPFS:
      return warning(
        'file system',
        'the home lies in memory (tmpfs) and is gone after a restart of the machine',
        'name another directory in HOLDFAST_HOME',
      );
    case OVERLAY:
      return warning(
        'file system',
        'the home lies in a layer of a container and is gone with it',
        'put it on a volume',
      );
    case FUSE:
      return warning(
        'file system',
        'the home lies on a file system in user space: durable writes depend on it',
        'prefer a local disk',
      );
    default:
      return ok('file system', 'local');
  }
}

function inotifyCheck(inotify: MachineFacts['inotify']): Check[] {
  if (inotify === null) return [];
  const { instances, watches, used } = inotify;
  const found = `${used} of ${instances} instances of your user in use, ${watches} watches allowed`;
  if (instances - used < FEW_INSTANCES) {
    return [
      warning(
        'inotify',
        `${found}: programs in sandboxes may not get one`,
        'raise fs.inotify.max_user_instances with sysctl',
      ),
    ];
  }
  if (watches < FEW_WATCHES) {
    return [
      warning(
        'inotify',
        `${found}: large workspaces may not be watched whole`,
        'raise fs.inotify.max_user_watches with sysctl',
      ),
    ];
  }
  return [ok('inotify', found)];
}
