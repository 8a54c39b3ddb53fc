import { copyFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { SetupStatusSchema } from '../../../protocol/setup.ts';
import { NameServer } from '../../egress-harness/name-server.ts';
import { Origin } from '../../egress-harness/origin.ts';
import { npmSite } from '../../egress-harness/package-sites.ts';
import { writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

const AGENT = resolve(import.meta.dirname, '../../fixtures/acp-agent/agent.mjs');
const SOURCE = 'packages.replay.test';
const WANTED = '{"dependencies": {"wanted": "1.0.0"}}';
const PLANTED = '{"dependencies": {"wanted": "1.0.0", "planted": "1.0.0"}}';

/** Asks every socket and port of the sandbox for a setup, and tries to reach the source of the packages as the setup did. */
const ASK = `
import glob, json, os, socket, stat
said = []
def talk(family, address):
    for text in (b'{"jsonrpc":"2.0","id":1,"method":"setup/run","params":{"profile":"replayed"}}\\n',
                 b'POST /setup/run HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nContent-Length: 0\\r\\n\\r\\n',
                 b'CONNECT SOURCE:PORT HTTP/1.1\\r\\nHost: SOURCE:PORT\\r\\n\\r\\n',
                 b'GET http://SOURCE:PORT/npm/planted HTTP/1.1\\r\\nHost: SOURCE:PORT\\r\\n\\r\\n'):
        with socket.socket(family) as s:
            s.settimeout(1)
            try:
                s.connect(address)
                s.sendall(text)
                said.append(s.recv(100).decode('latin1').split('\\r')[0])
            except OSError as error:
                said.append(type(error).__name__)
for port in list(range(3120, 3200)) + [80, 443, 2375, 2376, PORT]:
    probe = socket.socket()
    probe.settimeout(1)
    if probe.connect_ex(('127.0.0.1', port)) == 0: talk(socket.AF_INET, ('127.0.0.1', port))
    probe.close()
for top in ('/run', '/tmp', '/opt', '/ctl', '/var/run', '/home', '/agent', '/workspace'):
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if stat.S_ISSOCK(os.lstat(path).st_mode): talk(socket.AF_UNIX, path)
print(json.dumps(said))
`;

let names: NameServer;
let origin: Origin;
let home: TestHome;
beforeAll(async () => {
  names = await NameServer.start({ [SOURCE]: ['127.0.0.1'] });
  origin = await Origin.start({ sites: [await npmSite('wanted', ''), await npmSite('planted', '')] });
  home = await TestHome.create({ HOLDFAST_DNS: names.address });
});
afterAll(async () => {
  await home.dispose();
  await origin.dispose();
  await names.dispose();
});

test('setup replayed from the agent phase: nothing that an agent writes, names or asks starts a setup or is an input of the next', async () => {
  const address = `${SOURCE}:${origin.port}`;
  const project = await writeProject(home.projects, {
    'holdfast.yaml': `name: replayed
persistence: persistent
agent: { protocol: acp, command: [node, /agent/agent.mjs] }
workspace: { seed: { path: work } }
egress: [{ host: nowhere.replay.test }]
env: { npm_config_registry: "http://${address}/npm/" }
setup: { packages: auto, run: "cat package.json > ~/.seen", egress: [{ host: "${address}" }, { host: "127.0.0.1:${origin.port}" }] }
`,
    'package.json': WANTED,
    'work/package.json': WANTED,
  });
  await copyFile(AGENT, join(project, 'agent.mjs'));
  const deployed = await home.run(['deploy', project]);
  expect(deployed, deployed.stderr).toMatchObject({ code: 0 });
  expect(origin.requests.some(({ url }) => url.includes('wanted'))).toBe(true);
  const before = await setups();
  expect(before).toHaveLength(1);
  await home.runOk(['session', 'create', 'replayed', '--name', 'default']);
  const asked = origin.requests.length;

  // Files that a setup begins with, each where the agent can write; and where it should not be able to.
  const image = before[0]?.image ?? '';
  const files = { 'package.json': PLANTED, Dockerfile: `FROM ${image}\nRUN touch /planted\n` };
  const places = ['/workspace', '/agent', '~', '/run/holdfast', '/opt/holdfast', '/tmp', '/ctl', '/'];
  const write = Object.entries(files).flatMap(([name, text]) =>
    places.map((place) => `(printf '%s' '${text}' > ${place}/${name}) 2>/dev/null`),
  );
  const yaml = `printf 'name: replayed\\nimage: ${image}\\nsetup: { packages: { npm: [planted] } }\\n' > holdfast.yaml`;
  const requests =
    'mkdir -p /run/holdfast/setup /run/holdfast/requests; echo run > /run/holdfast/setup/run; touch ~/.seen';
  await inSandbox([...write, yaml, requests, 'true'].join('\n'));
  const ask = ASK.replaceAll('SOURCE', SOURCE).replaceAll('PORT', String(origin.port));
  const said = await inSandbox(`python3 - <<'END'\n${ask}\nEND`);
  const answers = z.array(z.string()).parse(JSON.parse(said));
  // Somebody answered: the proxy, with a refusal.
  expect(answers.length).toBeGreaterThan(0);
  expect(answers.filter((one) => / 200 |result/.test(one))).toEqual([]);
  await inSandbox('npm install planted > /dev/null 2>&1; holdfast setup run replayed 2>/dev/null; true');

  // What brings sandboxes and sessions back runs no setup either, and a new session begins with what the setup left.
  await home.runOk(['session', 'stop', 'replayed/default']);
  await inSandbox('cat package.json');
  await home.runOk(['session', 'resume', 'replayed/default', '--from', 'clean']);
  await home.runOk(['session', 'create', 'replayed', '--name', 'second']);
  expect(await inSandbox('cat package.json ~/.seen; ls /planted 2>/dev/null; true', 'second')).toBe(
    WANTED + WANTED,
  );
  expect(await setups()).toEqual(before);
  expect(origin.requests.length).toBe(asked);

  // A person who runs the setup again runs that of the deployed project.
  await inSandbox(`printf '%s' '${PLANTED}' > package.json`);
  await home.runOk(['setup', 'run', 'replayed']);
  expect(await home.runOk(['setup', 'log', 'replayed'])).toContain('from package.json: wanted@1.0.0\n');
  expect(origin.requests.some(({ url }) => url.includes('planted'))).toBe(false);
  // Only a deploy takes other inputs.
  await writeFile(join(project, 'package.json'), PLANTED);
  await home.runOk(['deploy', project]);
  expect(origin.requests.some(({ url }) => url.includes('planted'))).toBe(true);
});

/** Runs a script beside the agent, as the agent's user. */
function inSandbox(script: string, session = 'default'): Promise<string> {
  return home.runOk(['exec', `replayed/${session}`, '--', 'sh', '-c', script]);
}

async function setups() {
  const status = await home.runJson(['setup', 'status', 'replayed']);
  return z.object({ setups: z.array(SetupStatusSchema) }).parse(status).setups;
}
