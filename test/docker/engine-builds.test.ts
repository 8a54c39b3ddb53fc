import { request, createServer } from 'node:http';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import Docker from 'dockerode';
import { pack } from 'tar-stream';
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { BUILD_DOCKERFILE, type PreparedImage } from '../../supervisor/engine/port.ts';
import { EngineFixture } from '../engine-harness/engine-fixture.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const MIB = 2 ** 20;
const docker = new Docker();

/** Builds steps on the agent image, of which each writes a file and removes that of the one before it. */
async function build(diskBytes: number, mebibytes: readonly number[]): Promise<PreparedImage> {
  const home = new EngineFixture({ image: __AGENT_IMAGE__ });
  onTestFinished(() => home.close());
  const sandbox = await home.createSession();
  await home.engine.startSidecar(sandbox);
  const { Size } = await docker.getImage(__AGENT_IMAGE__).inspect();
  const labels = home.engine.buildLabels(sandbox.sessionId);
  const label = (all: Readonly<Record<string, string>>): string =>
    `LABEL ${Object.entries(all)
      .map(([name, value]) => `${name}="${value}"`)
      .join(' ')}`;
  const steps = [
    `FROM ${__AGENT_IMAGE__}`,
    label(labels.build),
    'USER root',
    ...mebibytes.map((size) => `RUN rm -f /srv/file && head -c ${size * MIB} /dev/urandom > /srv/file`),
    label(labels.image),
  ];
  const context = pack();
  context.entry({ name: BUILD_DOCKERFILE }, `${steps.join('\n')}\n`);
  context.finalize();
  const bytes = await buffer(context);
  const io = { onStep: () => undefined, onOutput: () => undefined, signal: new AbortController().signal };
  const spec = {
    sandbox,
    context: () => Readable.from([bytes]),
    steps,
    args: {},
    baseBytes: Size,
    diskBytes,
  };
  try {
    const made = await home.engine.build(spec, io);
    await docker.getImage(made.reference).remove();
    return made;
  } finally {
    const filters = { label: [`dev.holdfast.session=${sandbox.sessionId}`] };
    expect(await docker.listImages({ all: true, filters })).toEqual([]);
  }
}

test('the steps of a build may write so much together, whatever later ones remove, and leave nothing', async () => {
  expect((await build(200 * MIB, [40, 40, 40])).bytes).toBeLessThan(125 * MIB);
  await expect(build(100 * MIB, [40, 40, 40])).rejects.toMatchObject({
    code: 'setup_failed',
    message: 'The setup wrote too much',
  });
});

/** The engine of this machine, as one without the classic builder describes itself. */
async function engineWithoutBuilder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-engine-'));
  const socketPath = join(folder, 'engine.sock');
  const server = createServer((asked, answer) => {
    const { method, url, headers } = asked;
    const inner = request({ socketPath: '/var/run/docker.sock', method, path: url, headers }, (reply) => {
      if (!/^\/version\b/.test(url ?? '')) {
        answer.writeHead(reply.statusCode ?? 500, reply.headers);
        answer.flushHeaders();
        reply.pipe(answer);
        return;
      }
      void buffer(reply).then((bytes) => {
        const version = z
          .looseObject({ Components: z.array(z.looseObject({})) })
          .parse(JSON.parse(bytes.toString()));
        answer.setHeader('Content-Type', 'application/json');
        answer.end(JSON.stringify({ ...version, Components: [{ Name: 'Podman Engine', Version: '4.3.1' }] }));
      });
    });
    inner.on('error', () => answer.destroy());
    answer.on('close', () => inner.destroy());
    asked.pipe(inner);
  });
  // What an engine answers to `attach` is no HTTP any more.
  server.on('upgrade', (asked, socket) => {
    const inner = connect('/var/run/docker.sock');
    const lines = asked.rawHeaders.flatMap((name, at, all) =>
      at % 2 === 0 ? [`${name}: ${all[at + 1] ?? ''}`] : [],
    );
    inner.write([`${asked.method ?? ''} ${asked.url ?? ''} HTTP/1.1`, ...lines, '', ''].join('\r\n'));
    inner.pipe(socket).pipe(inner);
    for (const [one, other] of [
      [inner, socket],
      [socket, inner],
    ] as const)
      one.on('error', () => undefined).once('close', () => other.destroy());
  });
  await new Promise<void>((resolve) => void server.listen(socketPath, resolve));
  onTestFinished(async () => {
    server.closeAllConnections();
    server.close();
    await rm(folder, { recursive: true, force: true });
  });
  return socketPath;
}

test('an engine without the classic builder answers not_supported, and what to do', async () => {
  const home = await TestHome.create({ DOCKER_HOST: `unix://${await engineWithoutBuilder()}` });
  onTestFinished(() => home.dispose());
  const project = await writeProject(home.projects, {
    ...shellProject('built', 'dockerfile: Dockerfile\n'),
    Dockerfile: 'FROM holdfast/agent:latest\n',
  });
  const { code, stderr } = await home.run(['deploy', project]);
  expect(code).toBe(1);
  expect(stderr).toContain('not_supported: The Dockerfile of built cannot be built');
  expect(stderr).toContain('does not have the classic builder');
  expect(stderr).toContain('name it in `image`');
});
