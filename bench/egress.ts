// The way out of a sandbox beside a plain Squid allow-list (apt-get install squid): node bench/egress.ts [--json] [--rounds N]
import { execFile, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import Docker from 'dockerode';
import { z } from 'zod';
import { EGRESS_PROXY } from '../protocol/egress.ts';
import { bareContainer, removeBareContainers } from './bare-container.ts';
import { Installation } from './installation.ts';
import { interleave, median, p99, Report } from './measure.ts';
import { containerOf } from './session-containers.ts';
import { Squid } from './squid.ts';
import { deployOver } from '../test/setup/deploy.ts';

const run = promisify(execFile);
const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 7 : Number(process.argv[wanted + 1]);
const DOWNLOAD_BYTES = 256 * 2 ** 20;
const CONNECTIONS = 40;
const PARALLEL = 200;

const client = await readFile(join(import.meta.dirname, 'egress-client.mjs'), 'utf8');
const docker = new Docker();
const folder = await mkdtemp(join(tmpdir(), 'holdfast-bench-egress-'));
const installation = await Installation.open();
const { client: supervisor, agentImage } = installation;
const origin = await startOrigin();
const squid = await Squid.start(origin.ports);
try {
  const report = new Report('The way out of a sandbox', {
    docker: (await docker.version()).Version,
    squid: squid === null ? 'not installed' : squidVersion(),
  });
  const [plain = 0, tls = 0] = origin.ports;
  const sandbox = await startSandbox(origin.ports);
  // The same client in the same image, on this machine's network: Squid and the server are one step away.
  const outside = await docker.createContainer({
    ...bareContainer(agentImage),
    HostConfig: { ...bareContainer(agentImage).HostConfig, NetworkMode: 'host' },
  });
  await outside.start();
  const ours = `${EGRESS_PROXY.host}:${String(EGRESS_PROXY.port)}`;
  const theirs = `127.0.0.1:${String(squid?.port)}`;

  const ways = {
    ours: { container: sandbox, proxy: ours },
    direct: { container: outside.id, proxy: '-' },
    ...(squid === null ? {} : { squid: { container: outside.id, proxy: theirs } }),
  };
  const measure = async (task: string, port: number, count: number): Promise<Record<string, number[]>> => {
    const all: Record<string, number[]> = {};
    const timed =
      ([name, { container, proxy }]: [string, (typeof ways)['ours']]) =>
      async (): Promise<number> => {
        const script = [
          'node',
          '--input-type=module',
          '-e',
          client,
          '--',
          task,
          proxy,
          String(port),
          String(count),
        ];
        const { stdout } = await run('docker', ['exec', container, ...script]);
        const samples = z.array(z.number()).parse(JSON.parse(stdout));
        (all[name] ??= []).push(...samples);
        return median(samples);
      };
    await interleave(rounds, Object.fromEntries(Object.entries(ways).map((way) => [way[0], timed(way)])));
    return all;
  };

  const rate = (samples: readonly number[] = []): number =>
    DOWNLOAD_BYTES / 2 ** 20 / (median(samples) / 1000);
  const downloads = await measure('download', tls, DOWNLOAD_BYTES);
  const ourRate = rate(downloads['ours']);
  report.add({ name: 'TLS download', ours: ourRate, unit: 'MB/s', target: { atLeast: 60 }, samples: rounds });
  if (squid !== null) {
    report.add({
      name: 'TLS download',
      ours: ourRate,
      unit: 'MB/s',
      peer: { name: 'Squid', value: rate(downloads['squid']) },
      ratio: ourRate / rate(downloads['squid']),
      target: { atLeast: 0.6 },
      samples: rounds,
    });
  }
  report.add({
    name: 'the same without a proxy',
    ours: rate(downloads['direct']),
    unit: 'MB/s',
    samples: rounds,
  });

  const connections = await measure('connect', plain, CONNECTIONS);
  const [mine = [], direct = []] = [connections['ours'], connections['direct']];
  report.add({
    name: 'new connection, more than direct',
    ours: median(mine) - median(direct),
    unit: 'ms',
    p99: p99(mine) - median(direct),
    ...(squid === null
      ? {}
      : { peer: { name: 'Squid', value: median(connections['squid'] ?? []) - median(direct) } }),
    target: { atMost: 3 },
    samples: mine.length,
  });

  const many = await measure('parallel', plain, PARALLEL);
  report.add({
    name: `${String(PARALLEL)} connections at once, all answered`,
    ours: median(many['ours'] ?? []),
    unit: 'ms',
    ...(squid === null ? {} : { peer: { name: 'Squid', value: median(many['squid'] ?? []) } }),
    samples: rounds,
  });
  process.exitCode = report.finish() ? 0 : 1;
} finally {
  await removeBareContainers(docker);
  await squid?.stop();
  origin.end();
  await installation.dispose();
  await rm(folder, { recursive: true, force: true });
}

function squidVersion(): string {
  return (
    /Version (\S+)/.exec(execFileSync('/usr/sbin/squid', ['-v'], { encoding: 'utf8' }))?.[1] ?? 'unknown'
  );
}

/** A process of its own, so that it and this one do not wait for each other. */
async function startOrigin(): Promise<{ ports: number[]; end: () => void }> {
  const [certificate, key] = [join(folder, 'certificate.pem'), join(folder, 'key.pem')];
  const { stdout } = await run('docker', [
    ...['run', '--rm', '--network', 'none', agentImage, 'sh', '-c'],
    'openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=bench -keyout /tmp/key 2>/dev/null && cat /tmp/key',
  ]);
  const pem = (name: string): string =>
    new RegExp(`-----BEGIN ${name}-----[^]*?-----END ${name}-----\n`).exec(stdout)?.[0] ?? '';
  await writeFile(certificate, pem('CERTIFICATE'));
  await writeFile(key, pem('PRIVATE KEY'));
  const child = spawn(process.execPath, [join(import.meta.dirname, 'origin.ts'), certificate, key], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const [line] = (await once(child.stdout, 'data')) as [Buffer];
  return { ports: z.array(z.number()).parse(JSON.parse(line.toString())), end: () => child.stdin.end() };
}

/** A session whose sandbox may reach these ports; gives its agent container. */
async function startSandbox(ports: readonly number[]): Promise<string> {
  const rules = ports.map((port) => `{ host: "127.0.0.1:${String(port)}" }`).join(', ');
  const project = await mkdtemp(join(folder, 'project-'));
  await writeFile(
    join(project, 'holdfast.yaml'),
    `name: bench-egress\nagent: { protocol: command, command: [sh] }\nworkspace: { seed: false }\npersistence: persistent\negress: [${rules}]\n`,
  );
  await deployOver(supervisor, project);
  const session = (await supervisor.call('session/create', { profile: 'bench-egress' })).session.id;
  const { turn } = await supervisor.call('turn/start', { session, prompt: 'true' });
  await supervisor.call('turn/wait', { turn: turn.turnId });
  return await containerOf(session, 'agent');
}
