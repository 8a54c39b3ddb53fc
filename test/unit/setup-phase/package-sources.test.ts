import { expect, test } from 'vitest';
import { checkProfile } from '../../../supervisor/profiles/read.ts';
import { packageSources, PUBLIC_SOURCES } from '../../../supervisor/setup/package-sources.ts';
import { planSetup } from '../../../supervisor/setup/plan.ts';

const PROFILE = checkProfile(`name: coder
agent: { protocol: command, command: [cat] }
setup: { packages: { npm: [tsx], pip: [ruff] }, egress: [npm, pypi, { host: a.test }] }
`);
const planned = (environment: NodeJS.ProcessEnv) =>
  planSetup(PROFILE, 'sha256:1', [], null, packageSources(environment));

test('packages come from the public sources unless the supervisor has others', () => {
  expect(packageSources({})).toEqual(PUBLIC_SOURCES);
  expect(planned({})?.key).toBe(planSetup(PROFILE, 'sha256:1')?.key);
  const own = planned({
    HOLDFAST_NPM_REGISTRY: 'http://packages.test:4873/npm/',
    HOLDFAST_PIP_INDEX: 'https://10.0.0.5/simple/',
  });
  expect(own?.key).not.toBe(planned({})?.key);
  // In their place, and nothing that the profile lists may have a private address.
  expect(own?.rules).toEqual([
    { host: 'packages.test:4873', mayBePrivate: true },
    { host: '10.0.0.5:443', mayBePrivate: true },
    { host: 'a.test' },
  ]);
  for (const { env } of own?.steps ?? []) {
    expect(env).toMatchObject({
      npm_config_registry: 'http://packages.test:4873/npm/',
      PIP_INDEX_URL: 'https://10.0.0.5/simple/',
    });
    expect(env).not.toHaveProperty('PIP_TRUSTED_HOST');
  }
});

test('a source on this machine is reached by the name that it has in sandboxes', () => {
  for (const host of ['localhost', '127.0.0.1', '[::1]', 'host.holdfast.internal']) {
    const { rules, env } = packageSources({ HOLDFAST_PIP_INDEX: `http://${host}:3141/simple/` });
    expect(rules.pypi).toEqual([{ host: 'host.holdfast.internal:3141' }]);
    expect(env).toEqual({
      PIP_INDEX_URL: 'http://host.holdfast.internal:3141/simple/',
      PIP_TRUSTED_HOST: 'host.holdfast.internal',
    });
  }
});

test('an address with a password, and what is no address, is refused without repeating it', () => {
  for (const text of ['http://me:pw-1234@a.test/', 'ftp://a.test/pw-1234', 'pw-1234', 'http://a_%.test/'])
    try {
      packageSources({ HOLDFAST_NPM_REGISTRY: text });
      expect.unreachable();
    } catch (error) {
      expect(error).toMatchObject({ code: 'invalid_state' });
      expect(String(error)).toContain('HOLDFAST_NPM_REGISTRY');
      expect(JSON.stringify(error)).not.toContain('pw-1234');
    }
});
