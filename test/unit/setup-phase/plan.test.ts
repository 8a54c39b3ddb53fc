import { describe, expect, test } from 'vitest';
import type { Profile } from '../../../protocol/profile.ts';
import { checkProfile } from '../../../supervisor/profiles/read.ts';
import { planSetup } from '../../../supervisor/setup/plan.ts';

const AGENT = 'agent: { protocol: command, command: [cat] }';

function profile(more: string, name = 'coder'): Profile {
  return checkProfile(`name: ${name}\n${AGENT}\n${more}`);
}
const keyOf = (more: string, base = 'sha256:1', name?: string): string | undefined =>
  planSetup(profile(more, name), base)?.key;
const PIP = 'setup: { packages: { pip: [ruff] } }\n';

describe('the plan of a setup', () => {
  test('takes a day at most', () => {
    const limited = (timeout: string) => profile(`setup: { packages: { pip: [ruff] }, timeout: ${timeout} }`);
    expect(limited('24h').setup?.timeout).toBe(86_400_000);
    expect(() => limited('25h')).toThrow();
    expect(() => limited('50d')).toThrow();
  });

  test('has a step for each kind of package, and their sources', () => {
    const plan = planSetup(
      profile('setup: { packages: { pip: [ruff==0.14], apt: [jq, ripgrep], npm: ["@types/node@24"] } }'),
      'sha256:1',
    );
    expect(plan?.steps.map(({ shown }) => shown)).toEqual([
      'apt install jq ripgrep',
      'npm install @types/node@24',
      'pip install ruff==0.14',
    ]);
    expect(plan?.rules.map(({ host }) => host)).toEqual([
      'deb.debian.org',
      'security.debian.org',
      'registry.npmjs.org',
      'pypi.org',
      'files.pythonhosted.org',
    ]);
    for (const { env } of plan?.steps ?? [])
      expect(env).toMatchObject({
        http_proxy: 'http://127.0.0.1:3128',
        HTTPS_PROXY: 'http://127.0.0.1:3128',
      });
  });

  test('reaches what it lists, and nothing else', () => {
    const more =
      'setup: { packages: { pip: [ruff] }, egress: [npm, { host: "a.example.org:8080" }, { host: b.example.org, quiet: true }] }';
    expect(planSetup(profile(more), 'sha256:1')).toMatchObject({
      rules: [
        { host: 'registry.npmjs.org' },
        { host: 'a.example.org:8080' },
        { host: 'b.example.org', quiet: true },
      ],
    });
    expect(planSetup(profile('setup: { packages: { pip: [ruff] }, egress: [] }'), 'sha256:1')?.rules).toEqual(
      [],
    );
  });

  test('is none where there is nothing to do', () => {
    expect(planSetup(profile(''), 'sha256:1')).toBeNull();
    expect(planSetup(profile('setup: { packages: {} }'), 'sha256:1')).toBeNull();
  });

  test('has a key of what decides its image, and of its profile', () => {
    const key = keyOf(PIP);
    expect(keyOf(`${PIP}limits: { memory: 1GiB }\n`)).toBe(key);
    expect(keyOf('setup: { packages: { pip: [ruff] }, timeout: 1h }\n')).toBe(key);
    const others = [
      keyOf(PIP, 'sha256:2'),
      keyOf(PIP, 'sha256:1', 'other'),
      keyOf(`${PIP}env: { PIP_INDEX_URL: "https://mirror.example.org/simple" }\n`),
      keyOf('setup: { packages: { pip: [ruff] }, egress: [pypi, npm] }\n'),
      keyOf('setup: { packages: { pip: [ruff==0.14] } }\n'),
    ];
    expect(new Set([key, ...others]).size).toBe(others.length + 1);
    const withSecrets = (...versions: string[]) =>
      planSetup(profile('setup: { packages: { pip: [ruff] }, secrets: [A] }'), 'sha256:1', versions)?.key;
    expect(new Set([key, withSecrets('/A/1'), withSecrets('/A/2'), withSecrets('coder/A/1')]).size).toBe(4);
    expect(withSecrets('/A/1')).toBe(withSecrets('/A/1'));
  });
});

describe('the commands of a setup', () => {
  const RUN = 'setup: { run: [npm ci, make] }\n';
  const seeded = (seed: string | null, more = RUN) => planSetup(profile(more), 'sha256:1', [], seed);

  test('are run by a shell, as the user of the agent and with the network of the setup', () => {
    const plan = seeded(null);
    expect(plan?.steps).toEqual([]);
    expect(plan?.commands.map(({ command }) => command)).toEqual([
      ['sh', '-ec', 'npm ci'],
      ['sh', '-ec', 'make'],
    ]);
    expect(plan?.commands[0]?.env).toMatchObject({ https_proxy: 'http://127.0.0.1:3128' });
    expect(plan?.commands[0]?.env).not.toHaveProperty('HOME');
    expect(plan?.rules).toEqual([]);
    expect(seeded(null, 'setup: { run: "a\\nb" }\n')?.commands).toHaveLength(1);
  });

  test('have a key of what they do, of the files they begin with, and of what HOME keeps', () => {
    const state = RUN + 'agent: { protocol: command, command: [cat], state: [.x] }\n';
    const kept = planSetup(checkProfile(`name: coder\n${state}`), 'sha256:1', [], 'a');
    const keys = [seeded('a'), seeded('b'), seeded(null), seeded('a', 'setup: { run: [make] }\n'), kept];
    expect(new Set(keys.map((plan) => plan?.key)).size).toBe(keys.length);
    expect(seeded('a')?.key).toBe(seeded('a')?.key);
    // What a setup without commands depends on is what it was.
    expect(seeded('a', PIP)?.key).toBe(keyOf(PIP));
  });

  test('are text that an argument can hold', () => {
    for (const run of ['""', '[]', '[""]', '"a\\0b"'])
      expect(() => seeded(null, `setup: { run: ${run} }\n`)).toThrow();
  });
});

describe('packages are names', () => {
  test.each([
    ['apt', '--allow-unauthenticated'],
    ['apt', './local.deb'],
    ['apt', 'sudo-'],
    ['apt', 'jq; id'],
    ['npm', 'git+ssh://git@example.org/x'],
    ['npm', 'file:../x'],
    ['npm', 'x@https://example.org/x.tgz'],
    ['npm', '--unsafe-perm'],
    ['npm', '../x'],
    ['pip', '-r'],
    ['pip', 'x @ https://example.org/x.whl'],
    ['pip', './x'],
    ['pip', '--index-url=https://example.org'],
  ])('%s: %s is refused', (kind, name) => {
    expect(() => profile(`setup: { packages: { ${kind}: [${JSON.stringify(name)}] } }`)).toThrow(
      'The profile cannot be used',
    );
  });
});
