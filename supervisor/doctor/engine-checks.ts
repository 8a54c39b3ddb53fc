import type { Check, EngineStatus } from '../../protocol/entities.ts';
import type { EngineFacts } from '../engine/port.ts';

/** The numbers of a version as an engine writes it: `20.10.24+dfsg1` → [20, 10, 24]. */
export function versionNumbers(text: string): readonly [number, number, number] {
  const [, major, minor, patch] = /(\d+)\.(\d+)(?:\.(\d+))?/.exec(text) ?? [];
  return [Number(major ?? 0), Number(minor ?? 0), Number(patch ?? 0)];
}

export function isOlder(version: string, than: string): boolean {
  const [a, b] = [versionNumbers(version), versionNumbers(than)];
  for (const at of [0, 1, 2] as const) if (a[at] !== b[at]) return a[at] < b[at];
  return false;
}

/** The release of runc that fixed published container escapes. */
const RUNC_FIXED = '1.2.8';
const RUNC_ESCAPES = 'CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881';
/** From this version on, `docker volume prune` keeps named volumes. */
const PRUNE_SPARES_NAMED = '23.0.0';
const MAX_CLOCK_SKEW_MS = 5000;

export function engineCheck(status: EngineStatus): Check {
  if (!status.reachable) {
    return {
      name: 'engine',
      status: 'problem',
      found: status.why ?? `no engine answers at ${status.endpoint}`,
      next: status.next ?? 'start the container engine, or set DOCKER_HOST',
    };
  }
  return {
    name: 'engine',
    status: 'ok',
    found: `version ${status.version ?? 'unknown'} (API ${status.apiVersion ?? 'unknown'}) at ${status.endpoint}, by ${status.source}`,
    next: null,
  };
}

/** Checks of the features that sandboxes use, for a reachable engine. */
export function capabilityChecks({ capabilities }: EngineStatus): Check[] {
  if (capabilities === null) return [];
  const { pause, localPaths, runtimes } = capabilities;
  return [
    pause === 'none'
      ? warning('pause', 'this engine cannot pause containers: idle sessions become resumable at once', null)
      : ok('pause', pause === 'freezer' ? 'a paused sandbox keeps its memory' : pause),
    localPaths
      ? ok('workspaces', "the engine sees this machine's files: workspaces are directories of the home")
      : ok('workspaces', "the engine does not see this machine's files: workspaces are named volumes"),
    ok('runtimes', runtimes.length === 0 ? 'only the default runtime' : runtimes.join(', ')),
  ];
}

export function factChecks(facts: EngineFacts, nowMs: number): Check[] {
  return [
    ...pruneCheck(facts),
    ...runtimeCheck(facts),
    facts.liveRestore === true
      ? ok('live-restore', 'on: sandboxes survive a restart of the engine')
      : ok(
          'live-restore',
          'off: a restart of the engine ends sandboxes; workspaces stay, and running turns fail',
          'set "live-restore": true in daemon.json to keep sandboxes',
        ),
    facts.seccomp
      ? ok('seccomp', 'on')
      : problem('seccomp', 'off: sandboxes can use every system call', 'use an engine with seccomp enabled'),
    mandatoryAccessCheck(facts),
    ...limitCheck(facts),
    facts.cgroupVersion === null
      ? warning('cgroups', 'the engine does not report its cgroup version', null)
      : ok('cgroups', `version ${facts.cgroupVersion}`),
    facts.userNamespaces || facts.rootless
      ? ok('user namespaces', facts.rootless ? 'on: the engine is rootless' : 'on')
      : ok('user namespaces', 'off; sandboxes never run as root and cannot gain privileges'),
    ...clockCheck(facts, nowMs),
  ];
}

function pruneCheck({ version }: EngineFacts): Check[] {
  if (version === null) return [warning('engine version', 'the engine does not report its version', null)];
  if (!isOlder(version, PRUNE_SPARES_NAMED)) return [ok('engine version', version)];
  return [
    warning(
      'engine version',
      `${version}: its \`docker volume prune\` deletes unused named volumes, including workspaces in volumes`,
      'keep workspaces in directories (the default with a local engine), or use Docker 23 or newer',
    ),
  ];
}

function runtimeCheck({ runtime, runtimeVersion }: EngineFacts): Check[] {
  if (runtime !== 'runc' || runtimeVersion === null) {
    return runtime === null
      ? []
      : [ok('runtime', runtimeVersion === null ? runtime : `${runtime} ${runtimeVersion}`)];
  }
  if (!isOlder(runtimeVersion, RUNC_FIXED)) return [ok('runtime', `runc ${runtimeVersion}`)];
  const patched = /deb|ubuntu|el\d|fc\d/.test(runtimeVersion)
    ? ' (your distribution may have patched it)'
    : '';
  return [
    warning(
      'runtime',
      `runc ${runtimeVersion} is older than ${RUNC_FIXED}, which fixed container escapes: ${RUNC_ESCAPES}${patched}`,
      'update runc, or set another `runtime` in profiles of untrusted agents',
    ),
  ];
}

function mandatoryAccessCheck({ apparmor, selinux }: EngineFacts): Check {
  const active = [...(apparmor ? ['AppArmor'] : []), ...(selinux ? ['SELinux'] : [])];
  if (active.length > 0) return ok('access control', active.join(', '));
  return warning(
    'access control',
    'neither AppArmor nor SELinux confines containers',
    'enable the one that your distribution uses',
  );
}

function limitCheck({ limits }: EngineFacts): Check[] {
  const missing = (['memory', 'cpu', 'pids'] as const).filter((one) => !limits[one]);
  if (missing.length === 0) return [ok('limits', 'memory, cpu and pids can be limited')];
  return [
    problem(
      'limits',
      `the engine cannot limit ${missing.join(', ')}: a sandbox can use all of it`,
      'enable the cgroup controllers of the kernel (see the warnings of `docker info`)',
    ),
  ];
}

function clockCheck({ clockMs }: EngineFacts, nowMs: number): Check[] {
  if (clockMs === null) return [];
  const skewMs = Math.abs(clockMs - nowMs);
  if (skewMs < MAX_CLOCK_SKEW_MS) return [ok('clock', 'the clocks of the engine and of this machine agree')];
  return [
    warning(
      'clock',
      `the clocks of the engine and of this machine differ by ${Math.round(skewMs / 1000)} s: times of files and events will not match`,
      'synchronize both with NTP',
    ),
  ];
}

export function ok(name: string, found: string, next: string | null = null): Check {
  return { name, status: 'ok', found, next };
}
export function warning(name: string, found: string, next: string | null): Check {
  return { name, status: 'warning', found, next };
}
export function problem(name: string, found: string, next: string | null): Check {
  return { name, status: 'problem', found, next };
}
