import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Server as TcpServer } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { EgressEventSchema } from '../../../protocol/egress.ts';
import { TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';

const HOST = 'host.holdfast.internal';

let home: TestHome;
let web: Server;
let echo: TcpServer;
let webPort: number;
let echoPort: number;
beforeAll(async () => {
  web = createServer((request, response) => response.end(`you asked for ${request.headers.host ?? ''}`));
  echo = createTcpServer((socket) => {
    socket.on('error', () => undefined);
    socket.pipe(socket);
  });
  for (const server of [web, echo]) {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  }
  webPort = (web.address() as AddressInfo).port;
  echoPort = (echo.address() as AddressInfo).port;
  home = await TestHome.create();
  const project = await writeProject(
    home.projects,
    shellProject(
      'hosted',
      `persistence: persistent
workspace: { seed: false }
egress:
  - { host: "${HOST}:${webPort}" }
  - { host: "${HOST}:${echoPort}" }
  - { host: telemetry.example.com, quiet: true }
env: { BASE_URL: "http://${HOST}:${webPort}" }
`,
    ),
  );
  await home.runOk(['deploy', project]);
});
afterAll(async () => {
  await home.dispose();
  web.closeAllConnections();
  web.close();
  echo.close();
});

async function decisions(): Promise<string[]> {
  const lines = await home.runOk(['session', 'events', 'default', '--type', 'egress', '--json']);
  return lines
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => EgressEventSchema.parse(z.object({ data: z.unknown() }).parse(JSON.parse(line)).data))
    .map(({ decision, host, port }) => `${decision} ${host}:${port}`);
}

test('one rule lets all clients reach one port of the host machine by its name, and no other port', async () => {
  const { stdout } = await home.run([
    'run',
    'hosted',
    `curl -sS "$BASE_URL"; echo
curl -sS --noproxy '' "$BASE_URL"; echo
node -e 'fetch(process.env.BASE_URL).then((a) => a.text()).then(console.log)'
python3 - <<'END'
import os, socket, urllib.request
print(urllib.request.urlopen(os.environ['BASE_URL']).read().decode())
with socket.create_connection(('${HOST}', ${echoPort})) as plain:
    plain.sendall(b'no proxy, no HTTP')
    print(plain.recv(100).decode())
try:
    socket.create_connection(('${HOST}', 1))
except ConnectionRefusedError:
    print('refused')
END`,
  ]);
  const said = `you asked for ${HOST}:${webPort}`;
  expect(stdout.trim().split('\n')).toEqual([said, said, said, said, 'no proxy, no HTTP', 'refused']);
  expect(await decisions()).toContain(`allowed ${HOST}:${echoPort}`);
});

test('a denied host marked quiet is not reported; another one is reported once per turn', async () => {
  const { stdout } = await home.run([
    'run',
    'hosted',
    `for i in 1 2 3 4 5; do
  curl -s -o /dev/null -w '%{http_code} ' http://telemetry.example.com/
  curl -s -o /dev/null -w '%{http_code} ' http://other.example.com/
done`,
  ]);
  expect(stdout.trim()).toBe(Array(10).fill('403').join(' '));
  const denied = (await decisions()).filter((one) => one.startsWith('denied'));
  expect(denied).toEqual(['denied other.example.com:80']);
  expect(await home.runOk(['policy', 'show', 'default'])).toMatch(
    /telemetry\.example\.com +deny, not reported/,
  );
});
