import { createHash } from 'node:crypto';
import type { EgressRule } from '../../protocol/egress.ts';
import type { Profile } from '../../protocol/profile.ts';
import { PACKAGE_HOSTS, type PackageHosts, type Packages } from '../../protocol/setup.ts';
import { NODE_ENVIRONMENT, proxyEnvironment } from '../egress/environment.ts';
import type { SetupStep } from '../engine/port.ts';

/** What a profile's setup does. Equal plans make equal images, as far as the package sources answer equally. */
export interface SetupPlan {
  readonly steps: readonly SetupStep[];
  readonly rules: readonly EgressRule[];
  readonly key: string;
}

/** Changes when the same setup would be run in another way. */
const FORMAT = 1;

/** Caches are in memory, and no answer is waited for. A denied request is not repeated for minutes. */
const COMMON: Readonly<Record<string, string>> = {
  HOME: '/root',
  LANG: 'C.UTF-8',
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

const SOURCE_OF: Readonly<Record<keyof Packages, PackageHosts>> = {
  apt: 'debian',
  npm: 'npm',
  pip: 'pypi',
};

/**
 * `base`: identity of the image to start from. `secrets`: what tells the versions of its secrets from others, never their values.
 * Null for a profile whose setup does nothing.
 */
export function planSetup(profile: Profile, base: string, secrets: readonly string[] = []): SetupPlan | null {
  const { packages = {} } = profile.setup ?? {};
  const env = { ...proxyEnvironment(), ...NODE_ENVIRONMENT, ...profile.env, ...COMMON };
  const steps = [
    ...step('apt', packages.apt, (names) => [
      'sh',
      '-ec',
      'apt-get update && exec apt-get install -y --no-install-recommends -- "$@"',
      'sh',
      ...names,
    ]),
    ...step('npm', packages.npm, (names) => ['npm', 'install', '--global', '--', ...names]),
    ...step('pip', packages.pip, (names) => ['python3', '-m', 'pip', 'install', '--', ...names]),
  ].map((one) => ({ ...one, env }));
  if (steps.length === 0) return null;
  const listed = profile.setup?.egress ?? steps.map(({ name }) => SOURCE_OF[name]);
  const rules = listed.flatMap((rule): readonly EgressRule[] =>
    typeof rule === 'string' ? PACKAGE_HOSTS[rule].map((host) => ({ host })) : [rule],
  );
  const made = { steps, rules };
  const inputs = JSON.stringify({
    format: FORMAT,
    profile: profile.name,
    base,
    ...made,
    ...(secrets.length === 0 ? {} : { secrets }),
  });
  return { ...made, key: createHash('sha256').update(inputs).digest('hex') };
}

function step<Name extends keyof Packages>(
  name: Name,
  packages: readonly string[] | undefined,
  command: (names: readonly string[]) => readonly string[],
): { name: Name; command: readonly string[]; shown: string }[] {
  if (packages === undefined) return [];
  return [{ name, command: command(packages), shown: `${name} install ${packages.join(' ')}` }];
}
