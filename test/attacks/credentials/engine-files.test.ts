import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import Docker from 'dockerode';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { SetupStatusSchema } from '../../../protocol/setup.ts';
import { NameServer } from '../../egress-harness/name-server.ts';
import { filesWithSecret, formsIn } from '../../egress-harness/secret-search.ts';
import { TEST_CERTIFICATE, TEST_CERTIFICATE_FILE } from '../../egress-harness/test-certificate.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

const ADDRESS = '127.0.0.3';
const KEY = 'sk-live-77b0e1c4/d+9 f2';
const TOKEN = 'setup-token-5d2c90a1+/7e';
const PLACEHOLDER = 'holdfast-placeholder-';
/** Reads the memory of every process that it may, as a core dump of each would hold it, and keeps what is printable. */
const DUMP = `import os,re
with open('/workspace/memory','wb') as out:
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            maps, memory = open(f'/proc/{pid}/maps').read(), open(f'/proc/{pid}/mem','rb')
        except OSError: continue
        for line in maps.split(chr(10)):
            area = re.match('([0-9a-f]+)-([0-9a-f]+) rw', line)
            if not area: continue
            start, end = (int(one, 16) for one in area.groups())
            try:
                memory.seek(start)
                out.write(memory.read(min(end - start, 1 << 26)))
            except (OSError, ValueError, OverflowError): pass`;

const docker = new Docker();
const engineFolder = ((await docker.info()) as { readonly DockerRootDir: string }).DockerRootDir;
/** The engine's own files can be read: a test as root, beside an engine of this machine. */
const isReadable = process.getuid?.() === 0 && existsSync(join(engineFolder, 'containers'));

let server: Server;
let names: NameServer;
let home: TestHome;
beforeAll(async () => {
  server = createServer(TEST_CERTIFICATE, (_request, response) => response.end('hello\n'));
  server.listen(0, ADDRESS);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  names = await NameServer.start({ 'api.test': [ADDRESS] });
  home = await TestHome.create({ HOLDFAST_DNS: names.address, NODE_EXTRA_CA_CERTS: TEST_CERTIFICATE_FILE });
  await home.runOk(['secret', 'set', 'KEY'], KEY);
  await home.runOk(['secret', 'set', 'TOKEN'], TOKEN);
  const profile = `persistence: persistent
workspace: { seed: false, backing: volume }
setup: { packages: { pip: [pip] }, run: 'test -n "$TOKEN" && echo made > made', secrets: [TOKEN], egress: [] }
egress: [{ host: "${ADDRESS}:${port}" }]
credentials: [{ host: "api.test:${port}", secret: KEY, as: bearer, url: BASE_URL, key: API_KEY }]
`;
  await home.runOk(['deploy', '--yes', await writeProject(home.projects, shellProject('keyed', profile))]);
  expect(await home.runOk(['run', 'keyed', 'cat made; curl -sS $BASE_URL/v1'])).toBe('made\nhello\n');
});
afterAll(async () => {
  await home.dispose();
  server.closeAllConnections();
  server.close();
  await names.dispose();
});

describe('keys and tokens of a session', () => {
  test.runIf(isReadable)(
    'are in no file of the engine: configurations, logs, layers, volumes (root, and an engine of this machine)',
    async () => {
      const shown = await home.runJson(['session', 'show', 'keyed/default']);
      const { id } = z.object({ session: z.object({ id: z.string() }) }).parse(shown).session;
      const folders: string[] = [];
      for (const role of ['agent', 'sidecar'] as const) {
        const container = (await home.containerId(id, role)) ?? '';
        const { GraphDriver } = await docker.getContainer(container).inspect();
        folders.push(join(engineFolder, 'containers', container), ...layersOf(GraphDriver));
        // What the engine's containerd keeps of it while it runs.
        for (const place of ['/run/docker', '/run/containerd', '/var/run/docker'])
          folders.push(...(await named(place, container)));
      }
      const status = await home.runJson(['setup', 'status', 'keyed']);
      const [setup] = z.object({ setups: z.array(SetupStatusSchema) }).parse(status).setups;
      folders.push(...layersOf((await docker.getImage(setup?.image ?? '').inspect()).GraphDriver));
      const { Volumes } = await docker.listVolumes({ filters: { label: [`dev.holdfast.session=${id}`] } });
      expect(Volumes.length).toBeGreaterThan(0);
      folders.push(...Volumes.map(({ Mountpoint }) => Mountpoint));

      const placeholders: string[] = [];
      for (const folder of folders.filter((one) => existsSync(one))) {
        placeholders.push(...(await filesWithSecret(folder, PLACEHOLDER)));
        for (const secret of [KEY, TOKEN]) expect(await filesWithSecret(folder, secret), folder).toEqual([]);
      }
      // The search does find what is there.
      expect(placeholders.some((path) => path.endsWith('config.v2.json'))).toBe(true);
    },
    120_000,
  );

  test('are in the memory of no process of the sandbox, of which a core dump would be a copy', async () => {
    const script = `curl -sS $BASE_URL/v1; python3 -c "${DUMP}"; (ulimit -c unlimited; cd /workspace && sh -c 'kill -ABRT $$'); true`;
    await home.runOk(['run', 'keyed', script]);
    // Where the host does not say otherwise, the core dump is beside them. Bytes that are no text do not matter here.
    const core = await home.run(['workspace', 'cat', 'keyed/default', 'core']);
    const seen = Buffer.from(
      (await home.runOk(['workspace', 'cat', 'keyed/default', 'memory'])) + core.stdout,
    );
    expect(seen.includes(PLACEHOLDER)).toBe(true);
    for (const secret of [KEY, TOKEN]) expect(formsIn(seen, secret)).toEqual([]);
  });

  test('a process of a setup that crashes leaves no core dump, and cannot allow itself one', async () => {
    const crash =
      "ulimit -c; ulimit -c unlimited 2>/dev/null && echo raised; sh -c 'kill -ABRT $$' 2>/dev/null || ls -A";
    const project = shellProject(
      'crashing',
      `persistence: persistent\nworkspace: { seed: false }\nsetup: { run: ${JSON.stringify(crash)}, secrets: [TOKEN], egress: [] }\n`,
    );
    const deployed = await home.run(['deploy', await writeProject(home.projects, project)]);
    expect(deployed, deployed.stderr).toMatchObject({ code: 0 });
    expect(await home.runOk(['setup', 'log', 'crashing'])).toMatch(/^0\n[^]*== no secret is in the files/m);
    expect(await home.runOk(['setup', 'log', 'crashing'])).not.toMatch(/raised|^core/m);
    expect(await filesWithSecret(home.path, TOKEN)).toEqual([]);
  });
});

/** The topmost layer, which nothing else shares. */
function layersOf({ Data }: { readonly Data: unknown }): string[] {
  const { UpperDir } = z.object({ UpperDir: z.string().optional() }).loose().nullable().parse(Data) ?? {};
  return UpperDir === undefined ? [] : [UpperDir];
}

/** Folders with this name, few levels down. */
async function named(top: string, name: string, depth = 4): Promise<string[]> {
  const entries = await readdir(top, { withFileTypes: true }).catch(() => []);
  const folders = entries.filter((entry) => entry.isDirectory());
  const found = folders.filter((entry) => entry.name === name).map((entry) => join(top, entry.name));
  if (depth === 0) return found;
  const deeper = folders.filter((entry) => entry.name !== name && entry.name !== 'rootfs');
  return [
    ...found,
    ...(await Promise.all(deeper.map((entry) => named(join(top, entry.name), name, depth - 1)))).flat(),
  ];
}
