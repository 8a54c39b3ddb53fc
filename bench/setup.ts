// What a setup costs, and what the sessions after it do: node bench/setup.ts [--json] [--rounds N]
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Readable } from 'node:stream';
import Docker from 'dockerode';
import { pack } from 'tar-stream';
import { scanFiles } from '../supervisor/setup/secret-scan.ts';
import { SecretSearch } from '../supervisor/setup/secret-search.ts';
import { deployOver } from '../test/setup/deploy.ts';
import { bareContainer, removeBareContainers } from './bare-container.ts';
import { Installation } from './installation.ts';
import { interleave, median, p99, Report, timed } from './measure.ts';

const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 11 : Number(process.argv[wanted + 1]);
const LAYER_BYTES = 500e6;
const FILE_BYTES = 1e6;
const SECRETS = 20;
const PAUSE_MS = 50;
const SETTLE_MS = 1500;

const docker = new Docker();
const installation = await Installation.open();
const { client, agentImage } = installation;
const project = await mkdtemp(join(tmpdir(), 'holdfast-bench-project-'));
const report = new Report('Setup', { docker: (await docker.version()).Version, image: agentImage });
const made: string[] = [];

async function deploy(name: string, more: string): Promise<void> {
  await writeFile(
    join(project, 'holdfast.yaml'),
    `name: ${name}\nagent: { protocol: command, command: [cat] }\npersistence: persistent\n${more}`,
  );
  await deployOver(client, project);
}

/**
 * The engine's ids of sidecars beside which no agent runs. Every session is stopped before the next one starts, so that they are what
 * is made ahead for the next session.
 */
async function idleSidecars(): Promise<string[]> {
  const label = [`dev.holdfast.home=${await homeId()}`, 'dev.holdfast.role=sidecar'];
  return (await docker.listContainers({ filters: { label } })).map(({ Id }) => Id);
}

async function homeId(): Promise<string> {
  return (await readFile(join(installation.home, 'id'), 'utf8')).trim();
}

/** Waits until the next session of the profile has been made ahead and the machine is quiet again. */
async function madeAhead(): Promise<void> {
  for (let waited = 0; (await idleSidecars()).length === 0; waited += PAUSE_MS) {
    if (waited > 30_000) throw new Error('no session was made ahead');
    await sleep(PAUSE_MS);
  }
  // Its files follow.
  await sleep(SETTLE_MS);
}

/** A session of its own each time, until both of its containers run. */
async function newSession(profile: string): Promise<number> {
  let id = '';
  const ms = await timed(async () => {
    const { session } = await client.call('session/create', { profile, name: `s${made.length}` });
    id = session.id;
    await client.call('session/resume', { session: id });
  });
  made.push(id);
  await client.call('session/stop', { session: id });
  return ms;
}

/** What a session of a prepared profile takes that finds a spare, and one right after it that finds none. */
const withoutSpare: number[] = [];
async function prepared(): Promise<number> {
  await madeAhead();
  const ms = await newSession('prepared');
  withoutSpare.push(await newSession('prepared'));
  return ms;
}

/** Bare containers, ours to remove: the second one joins the network of the first, as our agent joins its sidecar. */
async function containers(count: 1 | 2): Promise<number> {
  const made: Docker.Container[] = [];
  const create = async (more: Docker.HostConfig): Promise<Docker.Container> => {
    const { HostConfig, ...body } = bareContainer(agentImage);
    const container = await docker.createContainer({ ...body, HostConfig: { ...HostConfig, ...more } });
    made.push(container);
    return container;
  };
  const ms = await timed(async () => {
    const first = await create({});
    const second = count === 2 ? create({ NetworkMode: `container:${first.id}` }) : null;
    await first.start();
    await (await second)?.start();
  });
  for (const container of made.reverse()) await container.remove({ force: true });
  return ms;
}

/** A layer of files that hold no secret, as an engine sends it. */
function layer(): Readable {
  const bytes = randomBytes(FILE_BYTES);
  const archive = pack();
  void (async () => {
    for (let at = 0; at < LAYER_BYTES / FILE_BYTES; at += 1)
      await new Promise((resolve) => archive.entry({ name: `usr/lib/file-${at}` }, bytes, resolve));
    archive.finalize();
  })();
  return Readable.from(archive);
}

try {
  await deploy('plain', '');
  await deploy('prepared', 'setup: { run: "seq 1000 | split -l 1 - part-" }\n');
  await newSession('plain');
  await newSession('prepared');
  const started = await interleave(rounds, {
    prepared,
    plain: () => newSession('plain'),
    container: () => containers(1),
    pair: () => containers(2),
  });
  const bare = median(started.container);
  report.add({
    name: 'a further session of a prepared profile, until both containers run',
    ours: median(started.prepared),
    p99: p99(started.prepared),
    unit: 'ms',
    peer: { name: 'create + start of one bare container', value: bare },
    ratio: median(started.prepared) / bare,
    target: { atMost: 1.2 },
    samples: rounds,
  });
  report.add({
    name: 'one right after it, for which nothing was made ahead',
    ours: median(withoutSpare),
    p99: p99(withoutSpare),
    unit: 'ms',
    peer: { name: 'create + start of two bare containers that share a network', value: median(started.pair) },
    ratio: median(withoutSpare) / median(started.pair),
    samples: rounds,
  });
  report.add({
    name: 'the same, beside a profile without a setup',
    ours: median(started.prepared),
    unit: 'ms',
    peer: { name: 'a session without a setup', value: median(started.plain) },
    ratio: median(started.prepared) / median(started.plain),
    target: { atMost: 1.2 },
    samples: rounds,
  });

  const secrets = Array.from({ length: SECRETS }, (_, at) => ({
    name: `S${at}`,
    value: Buffer.from(`sk-${randomBytes(20).toString('base64url')}`),
  }));
  const signal = new AbortController().signal;
  const scans = await interleave(3, {
    // Of the processor: the rest is waiting for the engine, and for whoever else uses the machine.
    scan: async () => {
      const before = process.cpuUsage();
      await scanFiles(layer(), new SecretSearch(secrets), signal);
      const { user, system } = process.cpuUsage(before);
      return (user + system) / 1000;
    },
  });
  report.add({
    name: `the search of a layer of 500 MB for ${SECRETS} secrets, time of a processor`,
    ours: median(scans.scan) / 1000,
    unit: 's',
    target: { atMost: 3 },
    samples: 3,
  });
  process.exitCode = report.finish() ? 0 : 1;
} finally {
  await removeBareContainers(docker);
  await installation.dispose();
  await rm(project, { recursive: true, force: true });
}
