import type { ErrorData } from '../../protocol/errors.ts';
import type { Limit } from '../../sidecar/wire.ts';

const TEXTS: Readonly<Record<Limit, { readonly why: string; readonly next: string }>> = {
  memory: {
    why: 'it ran out of memory: the kernel ended a process in the sandbox',
    next: 'raise `limits.memory` in holdfast.yaml; files in /tmp are memory too',
  },
  processes: {
    why: 'it ran out of processes: one could not be started',
    next: 'raise `limits.pids` in holdfast.yaml',
  },
  workspace: {
    why: 'the disk of /workspace is full',
    next: 'make room on the disk of the home, for example with `holdfast workspace rm`',
  },
  tmp: {
    why: '/tmp is full: it is memory, and holds half of `limits.memory`',
    next: 'write large files below /workspace, or raise `limits.memory` in holdfast.yaml',
  },
  home: {
    why: 'the disk of HOME is full',
    next: 'make room on the disk of the home',
  },
  disk: {
    why: 'a disk was full when it wrote to it',
    next: 'see which one with `holdfast exec SESSION -- df -h /workspace /tmp /home/agent`',
  },
};

/** How programs report ENOSPC and EDQUOT, whatever their language. */
const DISK_FULL = /\b(?:ENOSPC|EDQUOT)\b|No space left on device|Disk quota exceeded/;

export function reportsFullDisk(errorOutput: string): boolean {
  return DISK_FULL.test(errorOutput);
}

/** Adds the limits that a failed turn met to its error. */
export function addLimits(rest: Omit<ErrorData, 'code'>, limits: readonly Limit[]): Omit<ErrorData, 'code'> {
  const [first] = limits;
  if (first === undefined) return rest;
  const whys = [...(rest.why === undefined ? [] : [rest.why]), ...limits.map((limit) => TEXTS[limit].why)];
  return {
    ...rest,
    why: whys.join('; '),
    next: TEXTS[first].next,
    details: { ...rest.details, limits: [...limits] },
  };
}
