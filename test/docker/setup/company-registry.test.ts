import { afterAll, beforeAll, expect, test } from 'vitest';
import Docker from 'dockerode';
import { NameServer } from '../../egress-harness/name-server.ts';
import { Origin } from '../../egress-harness/origin.ts';
import { npmSite } from '../../egress-harness/package-sites.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

const REGISTRY = 'packages.corp.test';
const PORT = 4873;
/** Serves what it is given, by path. */
const SERVE = `const files = JSON.parse(process.env.FILES);
require('node:http').createServer((request, response) => {
  const body = files[request.url];
  if (body === undefined) response.writeHead(404).end();
  else response.end(Buffer.from(body, 'base64'));
}).listen(${PORT});`;
const docker = new Docker();

let registry: Docker.Container;
let address: string;
let names: NameServer;
let home: TestHome;
beforeAll(async () => {
  const origin = await Origin.start({
    sites: [await npmSite('ours', 'module.exports = "of the company";\n')],
  });
  const files: Record<string, string> = {};
  for (const path of ['/npm/ours', '/npm/ours/-/ours-1.0.0.tgz']) {
    const answer = Buffer.from(await (await fetch(`http://127.0.0.1:${origin.port}${path}`)).arrayBuffer());
    // The tarball's address is that of whoever asked.
    const text = answer.toString('latin1').replaceAll(`127.0.0.1:${origin.port}`, `${REGISTRY}:${PORT}`);
    files[path] = Buffer.from(text, 'latin1').toString('base64');
  }
  await origin.dispose();
  registry = await docker.createContainer({
    Image: 'holdfast/agent:latest',
    Entrypoint: ['node', '-e', SERVE],
    Env: [`FILES=${JSON.stringify(files)}`],
    HostConfig: { AutoRemove: true },
  });
  await registry.start();
  address = Object.values((await registry.inspect()).NetworkSettings.Networks)[0]?.IPAddress ?? '';
  names = await NameServer.start({ [REGISTRY]: () => [address] });
  home = await TestHome.create({
    HOLDFAST_DNS: names.address,
    HOLDFAST_NPM_REGISTRY: `http://${REGISTRY}:${PORT}/npm/`,
  });
});
afterAll(async () => {
  await home.dispose();
  await names.dispose();
  await registry.remove({ force: true });
});

// Where the engine runs in a virtual machine, this machine has no way to its containers.
test.runIf(process.platform === 'linux')(
  'a registry with a private address is reached by setups, because the supervisor’s owner named it, and by no session (Linux)',
  async () => {
    expect(address).toMatch(/^(10|172\.(1[6-9]|2\d|3[01])|192\.168)\./);
    const install = 'setup: { packages: { npm: [ours@1.0.0] } }\n';
    const rule = `egress: [{ host: "${REGISTRY}:${PORT}" }]\n`;
    const folder = await writeProject(
      home.projects,
      shellProject('corp', `persistence: persistent\n${install}${rule}`),
    );
    const deployed = await home.run(['deploy', folder]);
    expect(deployed, deployed.stderr).toMatchObject({ code: 0 });
    const script = `node -p 'require(require("child_process").execSync("npm root -g").toString().trim() + "/ours")'`;
    expect(await home.runOk(['run', 'corp', script])).toBe('of the company\n');
    // A name that a session's rule allows does not lead to a private address, and neither does another name in a setup.
    const asked = await home.runOk([
      'run',
      'corp',
      `curl -s -o /dev/null -w '%{http_code}' http://${REGISTRY}:${PORT}/npm/ours; curl -s -o /dev/null -w ' %{http_code}\\n' http://${address}:${PORT}/npm/ours; true`,
    ]);
    expect(asked).toBe('403 403\n');
    names.set('packages.other.test', () => [address]);
    const other = `env: { npm_config_registry: "http://packages.other.test:${PORT}/npm/" }
setup: { packages: { npm: [ours@1.0.0] }, egress: [{ host: "packages.other.test:${PORT}" }] }
`;
    const refused = await home.run([
      'deploy',
      await writeProject(home.projects, shellProject('other', other)),
    ]);
    expect(refused.stderr).toContain('setup_failed: The setup failed at npm');
    expect(await home.runOk(['setup', 'log', 'other'])).toContain('(private_address)');
  },
  120_000,
);
