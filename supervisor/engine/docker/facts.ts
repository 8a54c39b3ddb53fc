import type { EngineFacts } from '../port.ts';
import type { DockerApi } from './api.ts';
import { InfoReply, VersionReply, parseReply } from './replies.ts';

/** Reads versions and protections from the engine. */
export async function readEngineFacts(api: DockerApi, timeoutMs: number): Promise<EngineFacts> {
  const what = 'Cannot read the versions of the engine';
  const [versionAnswer, infoAnswer] = await Promise.all(
    ['/version', '/info'].map((path) => api.json({ what, method: 'GET', path, timeoutMs })),
  );
  const version = parseReply(VersionReply, what, versionAnswer);
  const info = parseReply(InfoReply, what, infoAnswer);
  const runtime = info.DefaultRuntime ?? null;
  // The engine lists component versions by its own names; `runc` is the only runtime among them.
  const component = version.Components?.find(({ Name }) => Name === runtime);
  const hasOption = (name: string): boolean =>
    (info.SecurityOptions ?? []).some((option) => option.split(',').includes(`name=${name}`));
  const clock = Date.parse(info.SystemTime ?? '');
  return {
    version: version.Version,
    runtime,
    runtimeVersion: component?.Version ?? null,
    kernel: version.KernelVersion ?? (info.KernelVersion === '' ? null : info.KernelVersion),
    storageDriver: info.Driver ?? null,
    cgroupVersion: info.CgroupVersion === '1' || info.CgroupVersion === '2' ? info.CgroupVersion : null,
    liveRestore: info.LiveRestoreEnabled ?? null,
    seccomp: hasOption('seccomp'),
    apparmor: hasOption('apparmor'),
    selinux: hasOption('selinux'),
    userNamespaces: hasOption('userns'),
    rootless: hasOption('rootless'),
    limits: { memory: info.MemoryLimit, cpu: info.CpuCfsQuota, pids: info.PidsLimit },
    clockMs: Number.isNaN(clock) ? null : clock,
  };
}
