import type { Check } from '../../protocol/entities.ts';
import { ok, problem, warning } from './engine-checks.ts';

/** Facts about this machine; null where they are unknown. */
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
  /** The file system of the home is mounted with project quotas; null where that is unknown. */
  readonly projectQuotas: boolean | null;
  /** AF_VSOCK sockets, between a hypervisor and its virtual machines, are available. */
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
/** A sandbox needs one instance for its watches, and more for its programs. */
const FEW_INSTANCES = 16;
const FEW_WATCHES = 65_536;

export function machineChecks(facts: MachineFacts): Check[] {
  return [
    nodeCheck(facts.node),
    permissionCheck(facts.home),
    ...diskChecks(facts.disk),
    ...inotifyCheck(facts.inotify),
    ...vsockCheck(facts.vsock),
    storageLimitCheck(facts.projectQuotas),
  ];
}

/** The profile of sandboxes keeps them from such sockets, where the engine applies it; containers of others are not ours. */
function vsockCheck(vsock: boolean): Check[] {
  if (!vsock) return [];
  return [
    ok(
      'hypervisor',
      'AF_VSOCK sockets are available and belong to no network namespace; sandboxes cannot open them while `system calls` is ok',
    ),
  ];
}

function storageLimitCheck(projectQuotas: boolean | null): Check {
  const soft =
    'turns and writes by clients are refused beyond `workspace.limit` and `limits.home`, but a running turn can fill the disk of the home';
  return projectQuotas === true
    ? warning(
        'storage limit',
        `${soft}: its file system is mounted with project quotas, and Holdfast sets none`,
        'give HOLDFAST_HOME a project and a hard quota (`chattr -R +P -p NUMBER`, `setquota -P` or `xfs_quota`) if you do not trust your agents',
      )
    : warning(
        'storage limit',
        `${soft}: its file system is mounted without project quotas`,
        'put HOLDFAST_HOME on its own file system if you do not trust your agents',
      );
}

function nodeCheck(version: string): Check {
  return Number(version.split('.')[0]) >= 24
    ? ok('node', version)
    : problem('node', `${version} is too old`, 'use Node 24 or newer');
}

function permissionCheck({ path, mode, mine }: MachineFacts['home']): Check {
  if (!mine)
    return problem('home', `${path} belongs to another user`, 'set HOLDFAST_HOME to a directory of your own');
  const others = mode & 0o077;
  if (others === 0) return ok('home', `${path}, accessible only to you`);
  return problem(
    'home',
    `${path} is accessible to others (mode ${(mode & 0o777).toString(8)})`,
    `run: chmod 700 ${path}`,
  );
}

function diskChecks(disk: MachineFacts['disk']): Check[] {
  if (disk === null) return [warning('disk', "cannot read the properties of the home's file system", null)];
  return [spaceCheck(disk), fileSystemCheck(disk.type)];
}

function spaceCheck({ freeBytes, totalBytes, freeInodes, inodes }: NonNullable<MachineFacts['disk']>): Check {
  const found = `${(freeBytes / GIB).toFixed(1)} GiB of ${(totalBytes / GIB).toFixed(1)} GiB free`;
  const next = 'free some: `holdfast gc`, or delete sessions you no longer need';
  if (freeBytes < GIB) return problem('disk space', found, next);
  if (inodes > 0 && freeInodes / inodes < 0.02)
    return problem('disk space', `${found}, but almost no inodes`, next);
  if (freeBytes < 5 * GIB) return warning('disk space', found, next);
  return ok('disk space', found);
}

function fileSystemCheck(type: number): Check {
  const network = NETWORK[type];
  if (network !== undefined) {
    return warning(
      'file system',
      `the home is on ${network}: locks and durable writes are unreliable there`,
      'set HOLDFAST_HOME to a local directory',
    );
  }
  switch (type) {
    case TMPFS:
      return warning(
        'file system',
        'the home is in memory (tmpfs) and is lost when the machine restarts',
        'set HOLDFAST_HOME to another directory',
      );
    case OVERLAY:
      return warning(
        'file system',
        'the home is in the writable layer of a container and is lost with the container',
        'put it on a volume',
      );
    case FUSE:
      return warning(
        'file system',
        'the home is on a FUSE file system: whether writes are durable depends on that file system',
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
        `${found}: programs in sandboxes may not get an instance`,
        'raise fs.inotify.max_user_instances with sysctl',
      ),
    ];
  }
  if (watches < FEW_WATCHES) {
    return [
      warning(
        'inotify',
        `${found}: large workspaces may be watched only in part`,
        'raise fs.inotify.max_user_watches with sysctl',
      ),
    ];
  }
  return [ok('inotify', found)];
}
