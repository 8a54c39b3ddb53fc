import { createHash } from 'node:crypto';
import type { Profile } from '../../protocol/profile.ts';
import type { PackageHosts, Packages } from '../../protocol/setup.ts';
import { NODE_ENVIRONMENT, proxyEnvironment } from '../egress/environment.ts';
import { keptInHome } from '../../protocol/agent-home.ts';
import { toSingleLine } from '../base/single-line.ts';
import type { SetupRule } from '../egress/policies.ts';
import type { SetupStep } from '../engine/port.ts';
import { cloneCommand, hostOf } from './clone.ts';
import { type PackageSources, PUBLIC_SOURCES, setupRules } from './package-sources.ts';
import type { SetupCommand } from './setup-commands.ts';

/** What a profile's setup does. Equal plans make equal images, as far as the package sources answer equally. */
export interface SetupPlan {
  /** As root, on the image. */
  readonly steps: readonly SetupStep[];
  /** As the agent's user, in a workspace. */
  readonly commands: readonly SetupCommand[];
  readonly rules: readonly SetupRule[];
  readonly key: string;
}

/** Changes when the same setup would be run in another way. */
const FORMAT = 1;

/** Caches are in memory, and no answer is waited for. A denied request is not repeated for minutes. */
const COMMON: Readonly<Record<string, string>> = {
  DEBIAN_FRONTEND: 'noninteractive',
  npm_config_cache: '/tmp/npm',
  npm_config_fetch_retries: '1',
  npm_config_update_notifier: 'false',
  npm_config_audit: 'false',
  npm_config_fund: 'false',
  PIP_BREAK_SYSTEM_PACKAGES: '1',
  PIP_ROOT_USER_ACTION: 'ignore',
  PIP_DISABLE_PIP_VERSION_CHECK: '1',
  PIP_NO_CACHE_DIR: '1',
  PIP_NO_INPUT: '1',
};

const AS_ROOT = { ...COMMON, HOME: '/root', LANG: 'C.UTF-8' };
const SHOWN_CHARACTERS = 200;

/** For each kind of package, in the order in which they are installed: where it comes from, and the command. */
const INSTALLERS: Readonly<
  Record<keyof Packages, { source: PackageHosts; command: (names: readonly string[]) => readonly string[] }>
> = {
  apt: {
    source: 'debian',
    command: (names) => [
      'sh',
      '-ec',
      'apt-get update && exec apt-get install -y --no-install-recommends -- "$@"',
      'sh',
      ...names,
    ],
  },
  npm: { source: 'npm', command: (names) => ['npm', 'install', '--global', '--', ...names] },
  pip: { source: 'pypi', command: (names) => ['python3', '-m', 'pip', 'install', '--', ...names] },
};
const KINDS = Object.keys(INSTALLERS) as (keyof Packages)[];

/**
 * `base`: identity of the image to start from. `secrets`: what identifies the versions of its secrets, never their values.
 * `seed`: what identifies the files that its commands begin with; null: there are none. Null for a profile whose setup does
 * nothing.
 */
export function planSetup(
  profile: Profile,
  base: string,
  secrets: readonly string[] = [],
  seed: string | null = null,
  sources: PackageSources = PUBLIC_SOURCES,
): SetupPlan | null {
  const { packages: named = {}, run = [] } = profile.setup ?? {};
  // What `auto` means was found out before.
  const packages = named === 'auto' ? {} : named;
  const given = { ...proxyEnvironment(), ...NODE_ENVIRONMENT, ...sources.env, ...profile.env };
  const env = { ...given, ...AS_ROOT };
  const steps = KINDS.flatMap((kind) => step(kind, packages[kind])).map((one) => ({ ...one, env }));
  const repository = profile.workspace?.repository;
  const ran = [run].flat().map((script) => ({
    name: 'run',
    command: ['sh', '-ec', script],
    shown: toSingleLine(script, SHOWN_CHARACTERS),
    env: { ...given, ...COMMON },
  }));
  const commands = [...(repository === undefined ? [] : [cloneCommand(repository, given)]), ...ran];
  if (steps.length === 0 && commands.length === 0) return null;
  const listed = profile.setup?.egress ?? steps.map(({ name }) => INSTALLERS[name].source);
  const rules = [
    ...setupRules(listed, sources),
    ...(repository === undefined ? [] : [{ host: hostOf(repository) }]),
  ];
  const made = { steps, rules };
  const inputs = JSON.stringify({
    format: FORMAT,
    profile: profile.name,
    base,
    ...made,
    ...(secrets.length === 0 ? {} : { secrets }),
    // What is kept in HOME decides what of it is stored.
    ...(commands.length === 0 ? {} : { commands, seed, kept: keptInHome(profile.agent) }),
  });
  return { ...made, commands, key: createHash('sha256').update(inputs).digest('hex') };
}

function step(
  name: keyof Packages,
  packages: readonly string[] | undefined,
): { name: keyof Packages; command: readonly string[]; shown: string }[] {
  if (packages === undefined) return [];
  const { command } = INSTALLERS[name];
  return [{ name, command: command(packages), shown: `${name} install ${packages.join(' ')}` }];
}
