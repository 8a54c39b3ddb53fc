import type { ContainerCreateOptions, MountSettings } from 'dockerode';
import { HOST_MACHINE } from '../../../protocol/egress.ts';
import { IN_PROXY } from '../../../egress-proxy/wire.ts';
import { IN_SANDBOX } from '../../../sidecar/wire.ts';
import type { SandboxSpec } from '../port.ts';
import { SECCOMP_PROFILE } from './seccomp-profile.ts';

/** The network namespace of a container. */
export type NetworkNamespace = 'none' | { readonly joins: string };

const MIB = 1024 * 1024;
const SIDECAR_MEMORY = 512 * MIB;
const PROXY_MEMORY = 256 * MIB;
const PROXY_PIDS = 64;
const SECRETS_MEMORY = 16 * MIB;
/** Below those of sessions, and above those of people: nothing else runs as it. */
const PROXY_UID = 64_321;
/** Capabilities that a helper container needs to give a folder to a session's uid, and no others. */
const HELPER_CAPABILITIES = ['CHOWN', 'DAC_OVERRIDE', 'FOWNER'];
/** Below the daemon's own limit on all machines seen: raising it would require a privilege that a daemon may lack. */
const OPEN_FILES = 16384;

/**
 * A process with secrets that crashes writes its memory nowhere: not beside itself, and not to a program of the host. For
 * such a program Linux ignores the limit, unless it is 1 byte. No file is written either: it would be smaller than a page.
 */
const NO_CORE = { Name: 'core', Soft: 1, Hard: 1 };

/** Options of every container: no privileges, our own filter of system calls, only mounts are writable, nothing goes to the host's log. */
function hardened(
  memoryBytes: number,
  pids: number,
  hasSecrets = false,
): NonNullable<ContainerCreateOptions['HostConfig']> {
  return {
    CapDrop: ['ALL'],
    SecurityOpt: ['no-new-privileges:true', `seccomp=${SECCOMP_PROFILE}`],
    ReadonlyRootfs: true,
    Init: true,
    IpcMode: 'private',
    LogConfig: { Type: 'none', Config: {} },
    RestartPolicy: { Name: 'no' },
    Memory: memoryBytes,
    MemorySwap: memoryBytes,
    PidsLimit: pids,
    Ulimits: [{ Name: 'nofile', Soft: OPEN_FILES, Hard: OPEN_FILES }, ...(hasSecrets ? [NO_CORE] : [])],
  };
}

function networkMode(network: NetworkNamespace): string {
  return network === 'none' ? 'none' : `container:${network.joins}`;
}

/** The default runtime has many names; an empty one leaves the choice to the engine. */
function runtimeOf(name: string): { Runtime?: string } {
  return name === '' || name === 'default' ? {} : { Runtime: name };
}

/** It ends at TERM, after so many seconds at KILL, and nothing checks its health. */
function endsWithTerm(labels: Record<string, string>, seconds: number): Partial<ContainerCreateOptions> {
  return {
    Labels: labels,
    Healthcheck: { Test: ['NONE'] },
    StopSignal: 'SIGTERM',
    StopTimeout: seconds,
  };
}

/** How a container of a sandbox runs, what it reaches, and what it sees of this machine. */
function placed(
  { runtime }: SandboxSpec,
  mounts: MountSettings[],
  network: NetworkNamespace,
): NonNullable<ContainerCreateOptions['HostConfig']> {
  return { ...runtimeOf(runtime), NetworkMode: networkMode(network), Mounts: mounts };
}

/** `isAlone`: no agent starts with it. */
export function sidecarOptions(
  spec: SandboxSpec,
  image: string,
  mounts: MountSettings[],
  network: NetworkNamespace,
  labels: Record<string, string>,
  isAlone = false,
): ContainerCreateOptions {
  return {
    Image: image,
    User: `${spec.uid}:${spec.gid}`,
    Entrypoint: [
      'node',
      `--max-old-space-size=${SIDECAR_MEMORY / MIB / 2}`,
      `${IN_SANDBOX.runtime}/sidecar.cjs`,
    ],
    Cmd: [],
    WorkingDir: '/',
    Env: [
      `HOLDFAST_SESSION=${spec.sessionId}`,
      'HOME=/tmp',
      'LANG=C.UTF-8',
      // Its threads wait for the disk most of their time.
      'UV_THREADPOOL_SIZE=16',
      ...(isAlone ? ['HOLDFAST_WITHOUT_AGENT=1'] : []),
    ],
    ...endsWithTerm(labels, 10),
    ...(network === 'none' ? { Hostname: 'sandbox' } : {}),
    HostConfig: {
      ...hardened(SIDECAR_MEMORY, 256),
      // As much as its agent, whose files decide how much there is to do.
      NanoCpus: Math.round(Math.max(1, spec.limits.cpus) * 1e9),
      ...placed(spec, mounts, network),
      Tmpfs: { '/tmp': `rw,nosuid,nodev,noexec,mode=1777,size=${64 * MIB}` },
    },
  };
}

export function agentOptions(
  spec: SandboxSpec,
  mounts: MountSettings[],
  network: NetworkNamespace,
  labels: Record<string, string>,
): ContainerCreateOptions {
  const { memoryBytes, cpus, pids } = spec.limits;
  const tmpBytes = Math.max(16 * MIB, Math.floor(memoryBytes / 2));
  return {
    Image: spec.image,
    User: `${spec.uid}:${spec.gid}`,
    Entrypoint: [`${IN_SANDBOX.runtime}/busybox`, 'sh', `${IN_SANDBOX.runtime}/runner.sh`],
    Cmd: [],
    WorkingDir: IN_SANDBOX.workspace,
    Env: [
      ...Object.entries({ ...agentEnvironment(spec.sessionId), ...spec.env, ...RUNNER_ENVIRONMENT }).map(
        ([name, value]) => `${name}=${value}`,
      ),
      // A name without a value removes the variable that the image sets.
      ...RUNNER_SETS,
    ],
    ...endsWithTerm(labels, 10),
    ...(network === 'none' ? { Hostname: 'sandbox' } : {}),
    HostConfig: {
      ...hardened(memoryBytes, pids, spec.hasSecretsFolder),
      NanoCpus: Math.round(cpus * 1e9),
      ...placed(spec, mounts, network),
      Tmpfs: {
        // Builds and installers execute files in /tmp.
        '/tmp': `rw,exec,nosuid,nodev,mode=1777,size=${tmpBytes}`,
        ...(spec.hasSecretsFolder === true
          ? {
              [IN_SANDBOX.secrets]: `rw,noexec,nosuid,nodev,mode=700,uid=${spec.uid},gid=${spec.gid},size=${SECRETS_MEMORY}`,
            }
          : {}),
      },
    },
  };
}

/**
 * What a package manager needs and no more: apt becomes another user, and unpackers give files to their owners. The root file system
 * is writable, because it becomes the image; what must not become part of it is in memory. Variables come with each step: those of a
 * container would be part of its image.
 */
const SETUP_CAPABILITIES = [...HELPER_CAPABILITIES, 'SETUID', 'SETGID'];
const SETUP_CACHES = ['/run', '/var/lib/apt/lists', '/var/cache/apt'];

export function setupOptions(
  spec: SandboxSpec,
  mounts: MountSettings[],
  network: NetworkNamespace,
  labels: Record<string, string>,
): ContainerCreateOptions {
  const { memoryBytes, cpus, pids } = spec.limits;
  const half = Math.max(16 * MIB, Math.floor(memoryBytes / 2));
  return {
    Image: spec.image,
    User: '0:0',
    Entrypoint: [`${IN_SANDBOX.runtime}/busybox`, 'sleep', '2147483647'],
    Cmd: [],
    WorkingDir: '/',
    ...endsWithTerm(labels, 1),
    HostConfig: {
      ...hardened(memoryBytes, pids, true),
      ReadonlyRootfs: false,
      CapAdd: SETUP_CAPABILITIES,
      NanoCpus: Math.round(cpus * 1e9),
      ...placed(spec, mounts, network),
      Tmpfs: {
        '/tmp': `rw,exec,nosuid,nodev,mode=1777,size=${half}`,
        ...Object.fromEntries(SETUP_CACHES.map((path) => [path, `rw,nosuid,nodev,mode=755,size=${half}`])),
      },
    },
  };
}

/** Variables that our scripts in the container read; neither the image nor a profile overrides them. */
const RUNNER_ENVIRONMENT = {
  HOLDFAST_BUSYBOX: `${IN_SANDBOX.runtime}/busybox`,
  HOLDFAST_RUN: IN_SANDBOX.run,
  HOLDFAST_WORKSPACE: IN_SANDBOX.workspace,
  HOLDFAST_TMP: '/tmp',
} as const;
/** Variables that the scripts set for the processes they start, and by which they find those processes. */
const RUNNER_SETS = [
  'HOLDFAST_RUNNER',
  'HOLDFAST_TURN',
  'HOLDFAST_WORKER',
  'HOLDFAST_FIRST_TURN',
  'HOLDFAST_EXEC',
  'HOLDFAST_TERMINAL',
];

/** Everything but PATH, which stays the image's. */
function agentEnvironment(sessionId: string): Record<string, string> {
  const name = 'Holdfast Agent';
  const email = `${sessionId}@holdfast.invalid`;
  return {
    // The runner finds the processes of the session by it.
    HOLDFAST_SESSION: sessionId,
    HOME: IN_SANDBOX.home,
    USER: 'agent',
    LOGNAME: 'agent',
    LANG: 'C.UTF-8',
    TERM: 'xterm-256color',
    GIT_AUTHOR_NAME: name,
    GIT_AUTHOR_EMAIL: email,
    GIT_COMMITTER_NAME: name,
    GIT_COMMITTER_EMAIL: email,
  };
}

/** One command in the trusted image: as root where it has to change owners, else as the given owner. */
export function helperOptions(options: {
  image: string;
  command: readonly string[];
  mounts: MountSettings[];
  labels: Record<string, string>;
  user: { uid: number; gid: number } | 'root';
  stdin: boolean;
}): ContainerCreateOptions {
  const { user } = options;
  return {
    Image: options.image,
    User: user === 'root' ? '0:0' : `${user.uid}:${user.gid}`,
    Entrypoint: [...options.command],
    Cmd: [],
    WorkingDir: '/',
    Env: ['HOME=/tmp', 'LANG=C.UTF-8'],
    Labels: options.labels,
    Healthcheck: { Test: ['NONE'] },
    OpenStdin: options.stdin,
    StdinOnce: options.stdin,
    AttachStdin: options.stdin,
    AttachStdout: true,
    AttachStderr: true,
    StopTimeout: 1,
    HostConfig: {
      ...hardened(SIDECAR_MEMORY, 256),
      ...(user === 'root' ? { CapAdd: HELPER_CAPABILITIES } : {}),
      NetworkMode: 'none',
      AutoRemove: true,
      Mounts: options.mounts,
    },
  };
}

/**
 * The process that reads what sandboxes send. It has no network: the supervisor dials. `listens`: it is reached through a
 * socket in a folder that is mounted; otherwise through its input and output.
 */
export function proxyOptions(
  image: string,
  mounts: MountSettings[],
  listens: boolean,
  labels: Record<string, string>,
): ContainerCreateOptions {
  return {
    Image: image,
    User: `${PROXY_UID}:${PROXY_UID}`,
    Entrypoint: [
      'node',
      `--max-old-space-size=${PROXY_MEMORY / MIB / 2}`,
      `${IN_PROXY.runtime}/egress-proxy.cjs`,
    ],
    Cmd: [],
    WorkingDir: '/',
    Env: [...(listens ? [`HOLDFAST_CONTROL=${IN_PROXY.control}`] : []), 'HOME=/', 'LANG=C.UTF-8'],
    Labels: labels,
    Healthcheck: { Test: ['NONE'] },
    Hostname: 'egress-proxy',
    OpenStdin: true,
    StdinOnce: true,
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    StopTimeout: 1,
    HostConfig: {
      ...hardened(PROXY_MEMORY, PROXY_PIDS),
      // It has one thread that works.
      NanoCpus: 1e9,
      NetworkMode: 'none',
      AutoRemove: true,
      Mounts: mounts,
    },
  };
}

/**
 * Replaces the files that the engine would mount from the container that created the network namespace. When that
 * container is removed, later joiners get empty files and cannot resolve `localhost`; and the engine's resolv.conf
 * names the name servers of the host.
 */
export const NETWORK_FILES = {
  hosts: `127.0.0.1 localhost sandbox\n${HOST_MACHINE.address} ${HOST_MACHINE.name}\n::1 localhost ip6-localhost ip6-loopback\n`,
  hostname: 'sandbox\n',
  'resolv.conf': '# No network here, so no name server.\n',
} as const;

/** `passwd` and `group` of the agent container: the session's uid has a name and a home there. */
export function accountFiles(uid: number, gid: number): { passwd: string; group: string } {
  const isFree = (id: number): boolean => id !== uid && id !== gid;
  return {
    passwd: [
      'root:x:0:0:root:/root:/bin/sh',
      ...(uid === 0 ? [] : [`agent:x:${uid}:${gid}:agent:${IN_SANDBOX.home}:/bin/sh`]),
      ...(isFree(65534) ? ['nobody:x:65534:65534:nobody:/nonexistent:/bin/false'] : []),
      '',
    ].join('\n'),
    group: [
      'root:x:0:',
      ...(gid === 0 ? [] : [`agent:x:${gid}:`]),
      ...(isFree(65534) ? ['nogroup:x:65534:'] : []),
      '',
    ].join('\n'),
  };
}
