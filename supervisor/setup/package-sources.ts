import { HOST_MACHINE, isLoopback, type EgressRule } from '../../protocol/egress.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { canonicalizeHost } from '../../protocol/host-name.ts';
import { PACKAGE_HOSTS, type PackageHosts } from '../../protocol/setup.ts';
import type { SetupRule } from '../egress/policies.ts';

/** Where setups get packages from, by the names that `setup.egress` may have. */
export interface PackageSources {
  readonly rules: Readonly<Record<PackageHosts, readonly SetupRule[]>>;
  /** For the programs of a setup. */
  readonly env: Readonly<Record<string, string>>;
}

/** The sources that everybody has. */
export const PUBLIC_SOURCES: PackageSources = {
  rules: {
    npm: PACKAGE_HOSTS.npm.map((host) => ({ host })),
    pypi: PACKAGE_HOSTS.pypi.map((host) => ({ host })),
    debian: PACKAGE_HOSTS.debian.map((host) => ({ host })),
  },
  env: {},
};

/**
 * `HOLDFAST_NPM_REGISTRY=URL` and `HOLDFAST_PIP_INDEX=URL` in the environment of the supervisor replace the public sources. Errors:
 * `invalid_state` for one that is no plain HTTP address.
 */
export function packageSources(environment: NodeJS.ProcessEnv): PackageSources {
  const npm = readSource(environment, 'HOLDFAST_NPM_REGISTRY');
  const pypi = readSource(environment, 'HOLDFAST_PIP_INDEX');
  return {
    rules: {
      ...PUBLIC_SOURCES.rules,
      ...(npm === null ? {} : { npm: [npm.rule] }),
      ...(pypi === null ? {} : { pypi: [pypi.rule] }),
    },
    env: {
      ...(npm === null ? {} : { npm_config_registry: npm.url.href }),
      ...(pypi === null ? {} : { PIP_INDEX_URL: pypi.url.href }),
      // Without it pip takes nothing over plain HTTP.
      ...(pypi?.url.protocol === 'http:' ? { PIP_TRUSTED_HOST: pypi.url.hostname } : {}),
    },
  };
}

/** What a setup may reach: the rules that it lists, and those of the sources that it names. */
export function setupRules(
  listed: readonly (PackageHosts | EgressRule)[],
  { rules }: PackageSources,
): SetupRule[] {
  return listed.flatMap((one): readonly SetupRule[] => (typeof one === 'string' ? rules[one] : [one]));
}

function readSource(environment: NodeJS.ProcessEnv, name: string): { url: URL; rule: SetupRule } | null {
  const text = environment[name];
  if (text === undefined || text === '') return null;
  const refuse = (why: string): HoldfastError =>
    new HoldfastError('invalid_state', `${name} of the supervisor cannot be used`, {
      why,
      next: 'set it to an address such as http://packages.example.com:4873/, and start the supervisor again',
    });
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^https?:$/.test(url.protocol)) throw refuse('it is no address with http or https');
  // It is in the log of the setup, and in the arguments of programs.
  if (url.username !== '' || url.password !== '')
    throw refuse('it has a user or a password; a setup gets those by `setup.secrets`');
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const port = url.port === '' ? (url.protocol === 'http:' ? '80' : '443') : url.port;
  if (isLoopback(host) || host === HOST_MACHINE.name) {
    // In a container it would be the container.
    const own = new URL(`${url.protocol}//${HOST_MACHINE.name}:${port}${url.pathname}${url.search}`);
    return { url: own, rule: { host: `${HOST_MACHINE.name}:${port}` } };
  }
  if ('refused' in canonicalizeHost(host)) throw refuse('its host is no name and no address');
  return { url, rule: { host: `${url.hostname}:${port}`, mayBePrivate: true } };
}
