import { createServer, type Server } from 'node:https';
import { once } from 'node:events';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { zstdDecompressSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { EgressEventSchema, type EgressEvent } from '../../../protocol/egress.ts';
import { NameServer } from '../../egress-harness/name-server.ts';
import { filesWithSecret, formsIn, LOOK, shownByEngine } from '../../egress-harness/secret-search.ts';
import { TEST_CERTIFICATE, TEST_CERTIFICATE_FILE } from '../../egress-harness/test-certificate.ts';
import { TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';

const ADDRESS = '127.0.0.3';
const SECRET = 'sk-live-4f9a1c77+/e20b d3';

let server: Server;
let received: IncomingMessage[];
let names: NameServer;
let home: TestHome;
let session: string;
beforeAll(async () => {
  received = [];
  server = createServer(TEST_CERTIFICATE, (request, response) => {
    received.push(request);
    if (request.url === '/echo') response.end(`you said ${JSON.stringify(request.rawHeaders)}`);
    else response.end('hello\n');
  });
  server.listen(0, ADDRESS);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  names = await NameServer.start({ 'api.test': [ADDRESS] });
  home = await TestHome.create({ HOLDFAST_DNS: names.address, NODE_EXTRA_CA_CERTS: TEST_CERTIFICATE_FILE });
  await home.runOk(['secret', 'set', 'KEY'], `${SECRET}\n`);
  const profile = `persistence: persistent
workspace: { seed: false }
egress: [{ host: "${ADDRESS}:${port}" }]
credentials: [{ host: "api.test:${port}", secret: KEY, as: bearer, url: BASE_URL, key: API_KEY }]
`;
  const project = await writeProject(home.projects, shellProject('keyed', profile));
  // A project names where a key goes: whoever deploys it agrees first, and is told.
  expect(await home.run(['deploy', project])).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('sessions send KEY to api.test') as string,
  });
  expect(await home.runOk(['profiles'])).toContain('No profiles are deployed yet');
  const deployed = await home.run(['deploy', project, '--yes']);
  expect(deployed).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('secret KEY to api.test') as string,
  });
  await home.runOk(['session', 'create', 'keyed', '--name', 'default']);
  session = await idOf('default');
});
afterAll(async () => {
  await home.dispose();
  server.closeAllConnections();
  server.close();
  await names.dispose();
});

const ShownSchema = z.object({ session: z.object({ id: z.string() }) });
async function idOf(name: string): Promise<string> {
  return ShownSchema.parse(await home.runJson(['session', 'show', name])).session.id;
}

async function decisions(): Promise<EgressEvent[]> {
  const lines = await home.runOk(['session', 'events', 'default', '--type', 'egress', '--json']);
  return lines
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => EgressEventSchema.parse(z.object({ data: z.unknown() }).parse(JSON.parse(line)).data));
}

describe('a key that a session uses', () => {
  test('arrives at the server, and the sandbox has a placeholder', async () => {
    const said = await home.runOk([
      'run',
      'keyed',
      'curl -sS -H "Authorization: Bearer $API_KEY" $BASE_URL/v1; echo $API_KEY',
    ]);
    expect(said).toMatch(/^hello\nholdfast-placeholder-31\d\d\n$/);
    expect(received.at(-1)?.headers.authorization).toBe(`Bearer ${SECRET}`);
    expect(received.at(-1)?.headers.host).toMatch(/^api\.test:/);
  });

  test('is nowhere that the sandbox, the engine, the home or a client shows: after use, fork, restore, resume and export', async () => {
    await home.runOk(['snapshot', 'create', 'default']);
    const { snapshots } = z
      .object({ snapshots: z.array(z.object({ id: z.string() })) })
      .parse(await home.runJson(['snapshot', 'list', 'default']));
    const snapshot = snapshots[0]?.id ?? '';
    const look = async (name: string): Promise<void> => {
      const seen = await home.runOk(['prompt', name, `curl -sS $BASE_URL/v1 >/dev/null; ${LOOK}`]);
      expect(seen).toContain('API_KEY=holdfast-placeholder');
      expect(formsIn(Buffer.from(seen), SECRET), name).toEqual([]);
      expect(formsIn(await shownByEngine(home, await idOf(name)), SECRET), name).toEqual([]);
    };
    await look('default');
    await home.runOk(['snapshot', 'fork', snapshot, '--name', 'forked']);
    await look('forked');
    await home.runOk(['snapshot', 'restore', 'default', snapshot]);
    await home.runOk(['session', 'stop', 'default']);
    await home.runOk(['session', 'resume', 'default']);
    await look('default');
    const bundle = join(home.path, 'exported.tar.zst');
    await home.runOk(['snapshot', 'export', 'default', bundle]);
    const exported = zstdDecompressSync(await readFile(bundle));
    expect(exported.includes('default')).toBe(true);
    expect(formsIn(exported, SECRET)).toEqual([]);
    expect(await filesWithSecret(home.path, SECRET)).toEqual([]);
    for (const command of [
      ['session', 'events', 'default', '--json'],
      ['secret', 'list', '--json'],
      ['policy', 'show', 'default', '--json'],
      ['supervisor', 'logs'],
      ['doctor'],
    ])
      expect(formsIn(Buffer.from((await home.run(command)).stdout), SECRET), command.join(' ')).toEqual([]);
    const supervisor = `/proc/${await home.supervisorPid()}`;
    for (const file of ['environ', 'cmdline'])
      expect(formsIn(await readFile(join(supervisor, file)), SECRET)).toEqual([]);
  }, 180_000);

  test('is not given away by a server that repeats it', async () => {
    const said = await home.run([
      'run',
      'keyed',
      'curl -sS -o seen $BASE_URL/echo; echo $?; cat seen 2>/dev/null',
    ]);
    expect(received.at(-1)?.url).toBe('/echo');
    expect(formsIn(Buffer.from(said.stdout), SECRET)).toEqual([]);
    expect(said.stdout).toMatch(/^(18|52|56)\n/);
    expect((await decisions()).map(({ reason }) => reason)).toContain('echo');
  });
});

describe('the port of a credential', () => {
  test('answers 503 while no supervisor is there, and works again with the next', async () => {
    const { path } = z
      .object({ path: z.string() })
      .parse(await home.runJson(['workspace', 'info', 'default']));
    const { turnId } = z
      .object({ turnId: z.string() })
      .parse(
        await home.runJson([
          ...['prompt', 'default', '--no-wait'],
          'touch ready; until [ -e go ]; do sleep 0.1; done; curl -s -o /dev/null -w "%{http_code}\\n" $BASE_URL/v1; touch asked; until [ -e on ]; do sleep 0.1; done; curl -s --retry 20 --retry-delay 1 --retry-all-errors -f $BASE_URL/v1',
        ]),
      );
    const there = (name: string) => readdir(path).then((found) => found.includes(name));
    await expect.poll(() => there('ready'), { timeout: 30_000 }).toBe(true);
    process.kill(await home.supervisorPid(), 'SIGKILL');
    await writeFile(join(path, 'go'), '');
    await expect.poll(() => there('asked'), { timeout: 30_000 }).toBe(true);
    await home.runOk(['profiles']);
    await writeFile(join(path, 'on'), '');
    expect(await home.runOk(['turn', 'wait', turnId])).toBe('503\nhello\n');
  }, 120_000);

  test('that a process took when the sidecar died gets placeholders, is reported, and is served again when it is free', async () => {
    const { path } = z
      .object({ path: z.string() })
      .parse(await home.runJson(['workspace', 'info', 'default']));
    const squat = `import os,socket,time,urllib.parse
port = urllib.parse.urlparse(os.environ['BASE_URL']).port
open('squatting','w').close()
while True:
    try:
        s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('127.0.0.1', port)); s.listen(); break
    except OSError: time.sleep(0.005)
open('taken','w').close()
while not os.path.exists('leave'): time.sleep(0.1)
s.close()`;
    const { turnId } = z
      .object({ turnId: z.string() })
      .parse(
        await home.runJson([
          ...['prompt', 'default', '--no-wait'],
          `python3 -c "${squat}"; curl -s --retry 30 --retry-delay 1 --retry-all-errors -f $BASE_URL/v1`,
        ]),
      );
    const there = (name: string) => readdir(path).then((found) => found.includes(name));
    await expect.poll(() => there('squatting'), { timeout: 30_000 }).toBe(true);
    await home.killContainer(session, 'sidecar');
    await expect.poll(() => there('taken'), { timeout: 30_000 }).toBe(true);
    await expect
      .poll(async () => (await decisions()).map(({ reason }) => reason), { timeout: 30_000 })
      .toContain('port_taken');
    await writeFile(join(path, 'leave'), '');
    expect(await home.runOk(['turn', 'wait', turnId])).toContain('hello');
  }, 120_000);
});
