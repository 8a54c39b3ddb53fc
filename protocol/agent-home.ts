import { z } from 'zod';
import { ConfigFolderSchema } from './agent-config.ts';

export const HOME_LIMITS = {
  /** Paths that a profile may name in `agent.state` and `agent.caches` together. */
  paths: 64,
  /** Sign-in files of all presets together. */
  signInFiles: 256,
  /** Bytes of a path, and names in it. */
  pathBytes: 512,
  names: 16,
} as const;

/** A path below the agent's HOME: `.claude`, `.local/share/opencode`. One spelling for each path. */
export const HomePathSchema = z
  .string()
  .refine(isHomePath, 'a path below HOME such as .claude or .cache/npm');

function isHomePath(path: string): boolean {
  const names = path.split('/');
  return (
    Buffer.byteLength(path) <= HOME_LIMITS.pathBytes &&
    names.length <= HOME_LIMITS.names &&
    path.isWellFormed() &&
    !path.includes('\0') &&
    names[0] !== '~' &&
    names.every((name) => name !== '' && name !== '.' && name !== '..' && Buffer.byteLength(name) <= 255)
  );
}

/** The fields of `agent` that say what HOME begins with, and what of it outlives a sandbox. */
export const AGENT_HOME_FIELDS = {
  /** What the agent knows and remembers: kept, and part of snapshots. */
  state: z.array(HomePathSchema).max(32).optional(),
  /** What can be fetched or computed again: kept, and not part of snapshots. */
  caches: z.array(HomePathSchema).max(32).optional(),
  /** The person's own configuration: what HOME begins with. */
  config: ConfigFolderSchema.optional(),
} as const;

export interface AgentHome {
  readonly state?: readonly string[] | undefined;
  readonly caches?: readonly string[] | undefined;
}

/** The paths of HOME that a new sandbox takes over. */
export function keptInHome({ state = [], caches = [] }: AgentHome): string[] {
  return [...new Set([...state, ...caches])];
}
