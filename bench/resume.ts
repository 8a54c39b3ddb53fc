// What coming back costs beside the bare engine: node bench/resume.ts [--json] [--rounds N]
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import Docker from 'dockerode';
import { BENCH_LABEL, bareContainer, bareRunArguments, removeBareContainers } from './bare-container.ts';
import { Installation } from './installation.ts';
import { interleave, median, p99, Report, timed } from './measure.ts';
import { deployOver } from '../test/setup/deploy.ts';

const run = promisify(execFile);
const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 21 : Number(process.argv[wanted + 1]);
const SESSIONS = 1000;
const LIVE = 20;
const WARM_UP = 5;
/** Nobody comes back the instant after pausing: what the engine tells of the pause has been heard by then. */
const PAUSED_MS = 150;

const docker = new Docker();
const installation = await Installation.open();
const { client, agentImage } = installation;
const project = await mkdtemp(join(tmpdir(), 'holdfast-bench-project-'));
const report = new Report('Coming back to a session', {
  docker: (await docker.version()).Version,
  image: agentImage,
});

async function rawCreateAndStart(): Promise<number> {
  const body = bareContainer(agentImage);
  let container: Docker.Container | null = null;
  const ms = await timed(async () => {
    container = await docker.createContainer(body);
    await container.start();
  });
  await (container as Docker.Container | null)?.remove({ force: true });
  return ms;
}

async function dockerRun(): Promise<number> {
  const { name, args } = bareRunArguments(agentImage);
  const ms = await timed(() => run('docker', args));
  await docker.getContainer(name).remove({ force: true });
  return ms;
}

try {
  await writeFile(
    join(project, 'holdfast.yaml'),
    'name: bench\nagent: { protocol: handler, entry: agent.py }\npersistence: persistent\n',
  );
  await writeFile(join(project, 'agent.py'), 'def handler(input):\n    return input\n');
  await deployOver(client, project);
  const { session } = await client.call('session/create', { profile: 'bench', name: 'one' });
  const ref = { session: session.id };
  const resume = () => client.call('session/resume', ref);
  const turn = async (): Promise<{ whole: number; turnMs: number }> => {
    const start = performance.now();
    const started = await client.call('turn/start', { ...ref, input: {} });
    const done = await client.call('turn/wait', { turn: started.turn.turnId });
    if (done.turn.status !== 'succeeded') throw new Error(`the turn ended ${done.turn.status}`);
    return { whole: performance.now() - start, turnMs: done.turn.timings.turnMs ?? Number.NaN };
  };
  await turn();

  const over: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const { whole, turnMs } = await turn();
    over.push(whole - turnMs);
  }
  report.add({
    name: 'running: a turn, over the turn itself',
    ours: median(over),
    p99: p99(over),
    unit: 'ms',
    target: { atMost: 10 },
    samples: rounds,
  });

  const raw = await docker.createContainer(bareContainer(agentImage));
  await raw.start();
  const paused = await interleave(rounds, {
    ours: async () => {
      await client.call('session/pause', ref);
      await sleep(PAUSED_MS);
      return timed(resume);
    },
    engine: async () => {
      await raw.pause();
      await sleep(PAUSED_MS);
      return timed(() => raw.unpause());
    },
  });
  await raw.remove({ force: true });
  report.add({
    name: 'paused: resume, over the engine’s unpause',
    ours: median(paused.ours) - median(paused.engine),
    unit: 'ms',
    peer: { name: 'unpause itself', value: median(paused.engine) },
    target: { atMost: 10 },
    samples: rounds,
  });

  const cold = await interleave(rounds, {
    ours: async () => {
      await client.call('session/stop', ref);
      return timed(resume);
    },
    standing: async () => {
      await client.call('session/stop', ref);
      await client.call('workspace/info', ref);
      return timed(resume);
    },
    engine: rawCreateAndStart,
    dockerRun,
  });
  const engine = median(cold.engine);
  report.add({
    name: 'resumable: resume until sidecar and agent run',
    ours: median(cold.ours),
    p99: p99(cold.ours),
    unit: 'ms',
    peer: { name: 'engine create + start', value: engine },
    ratio: median(cold.ours) / engine,
    target: { atMost: 1.9 },
    samples: rounds,
  });
  report.add({
    name: 'resumable, sidecar up: resume',
    ours: median(cold.standing),
    p99: p99(cold.standing),
    unit: 'ms',
    peer: { name: 'engine create + start', value: engine },
    ratio: median(cold.standing) / engine,
    target: { atMost: 0.8 },
    samples: rounds,
  });
  report.add({
    name: 'resumable, sidecar up: resume',
    ours: median(cold.standing),
    unit: 'ms',
    peer: { name: 'docker run -d', value: median(cold.dockerRun) },
    ratio: median(cold.standing) / median(cold.dockerRun),
    target: { atMost: 1 },
    samples: rounds,
  });
  await devcontainers(median(cold.ours));

  await client.call('session/stop', ref);
  const { turn: first } = await client.call('turn/start', { ...ref, input: {} });
  const done = await client.call('turn/wait', { turn: first.turnId });
  report.add({
    name: 'worker start (Python), in a new sandbox',
    ours: done.turn.timings.workerStartMs ?? Number.NaN,
    unit: 'ms',
  });

  for (let n = 0; n < SESSIONS - 1; n += 1)
    await client.call('session/create', { profile: 'bench', name: `s${String(n)}` });
  const listing: number[] = [];
  // A program that has just started compiles while it answers: not what a person who lists sessions all day meets.
  for (let n = 0; n < WARM_UP; n += 1) await client.call('session/list', { limit: 1000 });
  for (let round = 0; round < rounds; round += 1) {
    listing.push(
      await timed(async () => {
        const { sessions } = await client.call('session/list', { limit: 1000 });
        if (sessions.length !== SESSIONS) throw new Error(`${String(sessions.length)} sessions are listed`);
      }),
    );
  }
  report.add({
    name: 'listing 1,000 sessions, asked by a client',
    ours: median(listing),
    p99: p99(listing),
    unit: 'ms',
    target: { atMost: 20 },
    samples: rounds,
  });
  for (let n = 0; n < LIVE - 1; n += 1)
    await client.call('session/resume', { session: `bench/s${String(n)}` });
  report.add({
    name: `supervisor memory with ${String(SESSIONS)} sessions, ${String(LIVE)} live`,
    ours: (await installation.supervisorRss()) / 2 ** 20,
    unit: 'MiB',
    target: { atMost: 120 },
  });
} finally {
  await installation.dispose();
  await rm(project, { recursive: true, force: true });
  await removeBareContainers(docker);
}
process.exitCode = report.finish() ? 0 : 1;

/** `devcontainer up` on the same image, cold. Left out, and said so, where the package cannot be had. */
async function devcontainers(ours: number): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-bench-devcontainer-'));
  try {
    await run('npm', ['install', '--silent', '--no-save', '--prefix', folder, '@devcontainers/cli@0.89.0']);
    await run('mkdir', [join(folder, '.devcontainer')]);
    await writeFile(
      join(folder, '.devcontainer/devcontainer.json'),
      JSON.stringify({
        image: agentImage,
        runArgs: ['--network=none', '--label', `${BENCH_LABEL.name}=${BENCH_LABEL.value}`],
        overrideCommand: true,
        updateRemoteUserUID: false,
      }),
    );
    const samples: number[] = [];
    for (let round = 0; round < 5; round += 1) {
      samples.push(
        await timed(() =>
          run(process.execPath, [
            join(folder, 'node_modules/@devcontainers/cli/devcontainer.js'),
            'up',
            '--workspace-folder',
            folder,
            '--remove-existing-container',
          ]),
        ),
      );
    }
    report.add({
      name: 'resumable: resume',
      ours,
      unit: 'ms',
      peer: { name: 'devcontainer up', value: median(samples) },
      ratio: ours / median(samples),
      target: { atMost: 1 },
      samples: samples.length,
    });
  } catch (error) {
    console.error(
      `  devcontainer up was not measured: ${error instanceof Error ? error.message.slice(0, 300) : String(error)}`,
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
