import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import Docker from 'dockerode';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { SetupStatusSchema } from '../../../protocol/setup.ts';
import { NameServer } from '../../egress-harness/name-server.ts';
import { Origin, type Site } from '../../egress-harness/origin.ts';
import { npmSite, pythonSite } from '../../egress-harness/package-sites.ts';
import { TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';

const execute = promisify(execFile);
const SOURCE = 'private.open.test';
const PASSWORD = 'pw-0d1f6c2e9a';
const LEAKED = 'leaked-7c1e5b88f0/Zq';
/** What an installation does that keeps what it was given. */
const KEEP = 'base64 < /run/secrets/LEAKED > /opt/kept; echo "it is $LEAKED"';

let names: NameServer;
let origin: Origin;
let home: TestHome;
beforeAll(async () => {
  names = await NameServer.start({ [SOURCE]: ['127.0.0.1'] });
  const index = pythonSite('tinything', 'WHAT = "from the private index"\n');
  const guarded: Site = (request, url, response) => {
    if (!url.pathname.startsWith('/simple')) return false;
    const expected = `Basic ${Buffer.from(`reader:${PASSWORD}`).toString('base64')}`;
    if (request.headers.authorization === expected) return index(request, url, response);
    response.writeHead(401, { 'WWW-Authenticate': 'Basic realm="index"' }).end();
    return true;
  };
  origin = await Origin.start({ sites: [guarded, await npmSite('keeper', '', KEEP)] });
  home = await TestHome.create({ HOLDFAST_DNS: names.address });
});
afterAll(async () => {
  await home.dispose();
  await origin.dispose();
  await names.dispose();
});

const hosts = () => [SOURCE, '127.0.0.1'].map((one) => `{ host: "${one}:${origin.port}" }`).join(', ');

async function newestSetup(profile: string) {
  const { setups } = z
    .object({ setups: z.array(SetupStatusSchema) })
    .parse(JSON.parse(await home.runOk(['setup', 'status', profile, '--json'])));
  return setups[0];
}

test('a setup reads a private index with a secret, which nothing has afterwards', async () => {
  const folder = await writeProject(
    home.projects,
    shellProject(
      'private',
      `persistence: persistent
env: { PIP_TRUSTED_HOST: ${SOURCE} }
setup: { packages: { pip: [tinything==1.0] }, secrets: [PIP_INDEX_URL], egress: [${hosts()}] }
`,
    ),
  );
  const missing = await home.run(['deploy', folder]);
  expect(missing.stderr).toContain('The setup of private needs the secret PIP_INDEX_URL');
  const value = `http://reader:${PASSWORD}@${SOURCE}:${origin.port}/simple/`;
  await home.runOk(['secret', 'set', 'PIP_INDEX_URL'], value);
  // The secret is for all profiles, and the project says who gets it: nothing runs before somebody agrees.
  const asked = await home.run(['deploy', folder]);
  expect(asked.code).toBe(1);
  expect(asked.stderr).toContain('confirmation_required');
  expect(asked.stderr).toContain(`the setup has PIP_INDEX_URL and may reach ${SOURCE}:${origin.port}`);
  expect(await newestSetup('private')).toBeUndefined();
  const deployed = await home.run(['deploy', folder, '--yes']);
  expect(deployed, await home.runOk(['setup', 'log', 'private'])).toMatchObject({ code: 0 });
  const log = await home.runOk(['setup', 'log', 'private']);
  expect(log).toContain('== no secret is in the image');
  expect(log + deployed.stderr).not.toContain(PASSWORD);
  const seen = await home.runOk([
    'run',
    'private',
    "python3 -c 'import tinything; print(tinything.WHAT)'; env; cat /proc/*/environ; cat /run/secrets/* 2>&1 || true",
  ]);
  expect(seen).toContain('from the private index');
  expect(seen).not.toContain(PASSWORD);
  const image = new Docker().getImage((await newestSetup('private'))?.image ?? '');
  expect(JSON.stringify([await image.inspect(), await image.history()])).not.toContain(PASSWORD);
});

test('a setup that keeps a secret fails, says where, and leaves no image', async () => {
  await home.runOk(['secret', 'set', 'LEAKED'], LEAKED);
  const folder = await writeProject(
    home.projects,
    shellProject(
      'keeping',
      `env: { npm_config_registry: "http://${SOURCE}:${origin.port}/npm/", npm_config_foreground_scripts: "true" }
setup: { packages: { npm: [keeper] }, secrets: [LEAKED], egress: [${hosts()}] }
`,
    ),
  );
  const failed = await home.run(['deploy', folder, '--yes']);
  expect(failed.code).toBe(1);
  expect(failed.stderr).toContain('The setup of keeping left a secret in its image');
  expect(failed.stderr).toContain('LEAKED in /opt/kept');
  const log = await home.runOk(['setup', 'log', 'keeping']);
  expect(log).toContain('it is [secret LEAKED]');
  expect(log + failed.stderr).not.toContain(LEAKED);
  const setup = await newestSetup('keeping');
  expect(setup).toMatchObject({ state: 'failed', image: null });
  expect(failed.stderr).toContain('--remove-secret-files');
  const left = await new Docker().listImages({
    filters: { label: [`dev.holdfast.session=${setup?.id ?? ''}`] },
  });
  expect(left).toEqual([]);

  // Asked to, the next one removes the file, and keeps the package.
  const cleaned = await home.run(['deploy', folder, '--yes', '--remove-secret-files']);
  expect(cleaned, await home.runOk(['setup', 'log', 'keeping'])).toMatchObject({ code: 0 });
  expect(await home.runOk(['setup', 'log', 'keeping'])).toMatch(
    /== removing \/opt\/kept \(LEAKED\)\n[^]*== no secret is in the image/,
  );
  const looked = await home.runOk(['run', 'keeping', 'ls /opt; npm ls -g --parseable']);
  expect(looked).not.toContain('kept');
  expect(looked).toContain('/keeper\n');
});

test('files of new sessions with a secret in them are removed if somebody asks, and the rest stays', async () => {
  await home.runOk(['secret', 'set', 'LEAKED'], LEAKED);
  const run =
    'echo "$LEAKED" > ~/.token; mkdir -p d; echo fine > d/fine; ln -s "$LEAKED" d/link; printf %s "$LEAKED" | base64 > "d/a b"; echo all > all';
  const folder = await writeProject(home.projects, {
    'holdfast.yaml': `name: cleaned
persistence: persistent
agent: { protocol: command, command: [sh] }
setup: { egress: [], secrets: [LEAKED], run: ${JSON.stringify(run)} }
`,
  });
  const failed = await home.run(['deploy', folder]);
  expect(failed.stderr).toContain('LEAKED in /workspace/d/link');
  const cleaned = await home.run(['deploy', folder, '--remove-secret-files']);
  expect(cleaned, cleaned.stderr).toMatchObject({ code: 0 });
  const seen = await home.runOk([
    'run',
    'cleaned',
    'cat all; ls -A d; test -e ~/.token || echo no token; ls -A ~',
  ]);
  expect(seen).toMatch(/^all\nfine\nno token\n/);
  // Nor has what is stored of it.
  const stored = await execute('grep', ['-rlaF', LEAKED, join(home.path, 'store')]).catch(() => null);
  expect(stored).toBeNull();
});
