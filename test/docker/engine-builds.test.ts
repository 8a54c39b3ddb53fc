import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import Docker from 'dockerode';
import { pack } from 'tar-stream';
import { expect, onTestFinished, test } from 'vitest';
import { BUILD_DOCKERFILE, type PreparedImage } from '../../supervisor/engine/port.ts';
import { AlteredEngine } from '../engine-harness/altered-engine.ts';
import { EngineFixture } from '../engine-harness/engine-fixture.ts';
import { FakeRegistry } from '../engine-harness/fake-registry.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const MIB = 2 ** 20;
const BUILD_TAG = 'holdfast-test-builder';
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

test('the classic builder takes no filter of system calls of ours and no capabilities from a step, as docs/setup.md says', async () => {
  const buildWith = async (options: object): Promise<string> => {
    const context = pack();
    const steps = `FROM ${__AGENT_IMAGE__}\nUSER root\nRUN grep -E "CapEff|Seccomp:" /proc/self/status\n`;
    context.entry({ name: 'Dockerfile' }, steps);
    context.finalize();
    const tag = `${BUILD_TAG}:${String(process.pid)}`;
    const output = await docker.buildImage(Readable.from([await buffer(context)]), {
      ...{ t: tag, version: '1', nocache: true, rm: true, networkmode: 'none' },
      ...options,
    });
    const said = (await buffer(output)).toString();
    await docker.getImage(tag).remove();
    return said;
  };
  for (const securityopt of ['["seccomp=unconfined"]', '["no-new-privileges"]'])
    await expect(buildWith({ securityopt })).rejects.toThrow('does not support setting security options');
  const usual = await buildWith({});
  expect(usual).toMatch(/CapEff:\\t0*[1-9a-f]/);
  // The engine's own filter.
  expect(usual).toMatch(/Seccomp:\\t2/);
  const effective = (said: string): string | undefined => /CapEff:\\t([0-9a-f]+)/.exec(said)?.[1];
  expect(effective(await buildWith({ capdrop: '["ALL"]' }))).toBe(effective(usual));
});

test('an engine without the classic builder answers not_supported, and what to do', async () => {
  const engine = await AlteredEngine.start((path, answer) =>
    path === '/version' ? { ...answer, Components: [{ Name: 'Podman Engine', Version: '4.3.1' }] } : answer,
  );
  onTestFinished(() => engine.dispose());
  const home = await TestHome.create({ DOCKER_HOST: `unix://${engine.socketPath}` });
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

test('a digest of its own proves no registry, where every image has one: a registry has to know it', async () => {
  const registry = await FakeRegistry.start(1000);
  const { reference } = registry;
  const name = reference.replace(/:1$/, '');
  const published = { Id: '', RepoDigests: [''] };
  const local = { Id: `sha256:${'1'.repeat(64)}`, RepoDigests: [`${name}@sha256:${'1'.repeat(64)}`] };
  let said: object = {};
  const engine = await AlteredEngine.start((path, answer) =>
    path.startsWith('/images/') ? { ...answer, ...said } : answer,
  );
  onTestFinished(() => engine.dispose());
  const home = new EngineFixture({ image: 'none', env: { DOCKER_HOST: `unix://${engine.socketPath}` } });
  onTestFinished(() => home.close());
  const { images } = home.engine;
  await images.pull(reference, () => undefined, new AbortController().signal);
  onTestFinished(() => docker.getImage(reference).remove({ force: true }));
  const isPublished = async () => (await images.facts(reference))?.isPublished;

  // The classic store.
  expect(await isPublished()).toBe(true);
  said = { RepoDigests: [] };
  expect(await isPublished()).toBe(false);
  // That of containerd: the id is the digest.
  const [digest = ''] = (await docker.getImage(reference).inspect()).RepoDigests;
  published.RepoDigests = [digest];
  published.Id = digest.slice(digest.indexOf('@') + 1);
  said = published;
  expect(await isPublished()).toBe(true);
  said = local;
  expect(await isPublished()).toBe(false);
  said = published;
  await registry.close();
  expect(await isPublished()).toBe(false);
});
