// What the workspace's files cost beside docker's own ways: node bench/files.ts [--json] [--rounds N]
import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import Docker from 'dockerode';
import { FILE_CHUNK_BYTES } from '../protocol/files.ts';
import { BufferPool } from '../protocol/wire/buffer-pool.ts';
import { bareContainer, removeBareContainers } from './bare-container.ts';
import { Installation } from './installation.ts';
import { interleave, median, p99, Report, timed } from './measure.ts';
import { containerOf } from './session-containers.ts';
import { deployOver } from '../test/setup/deploy.ts';

const run = promisify(execFile);
const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 11 : Number(process.argv[wanted + 1]);
/** As the command line does it: a piece is as much as one message carries, and the next one is on its way. */
const PIECE = FILE_CHUNK_BYTES;
const AHEAD = 2;
const BIG = 50 * 1000 * 1000;
/** Small calls in one round: their median is the round's. */
const CALLS = 101;

const docker = new Docker();
const payloads = new BufferPool();
const installation = await Installation.open();
const { client, agentImage } = installation;
const project = await mkdtemp(join(tmpdir(), 'holdfast-bench-files-'));
const report = new Report('Workspace files', { docker: (await docker.version()).Version, image: agentImage });

async function each(call: () => Promise<unknown>, samples: number[]): Promise<number> {
  const mine: number[] = [];
  for (let n = 0; n < CALLS; n += 1) mine.push(await timed(call));
  samples.push(...mine);
  return median(mine);
}

/** A docker command with its output thrown away, and perhaps a file as its input. */
async function dockerCommand(args: readonly string[], input?: string): Promise<void> {
  const shell =
    input === undefined ? 'exec docker "$@" >/dev/null' : `exec docker "$@" >/dev/null <'${input}'`;
  const child = spawn('sh', ['-c', shell, 'sh', ...args], { stdio: ['ignore', 'ignore', 'inherit'] });
  const code = await new Promise((resolve) => child.on('close', resolve));
  if (code !== 0) throw new Error(`docker ${args.join(' ')} ended with ${String(code)}`);
}

try {
  const lines = 'name: bench-files\nagent: { protocol: command, command: [cat] }\npersistence: persistent\n';
  await writeFile(join(project, 'holdfast.yaml'), lines);
  await deployOver(client, project);
  const session = (await client.call('session/create', { profile: 'bench-files' })).session.id;
  await client.call('session/resume', { session });
  const agent = await containerOf(session, 'agent');
  const sidecar = await containerOf(session, 'sidecar');

  const small = randomBytes(10_240);
  const big = join(project, 'big');
  await writeFile(big, randomBytes(BIG));
  const write = (path: string, bytes: Buffer): Promise<unknown> =>
    client.call('files/write', { session, path, create: true, overwrite: true }, { bytes });
  await write('/workspace/small', small);
  await client.call('files/mkdir', { session, path: '/workspace/many' });
  await Promise.all(
    Array.from({ length: 1000 }, (_, n) => write(`/workspace/many/file-${n}.ts`, Buffer.from('x'))),
  );

  const stats: number[] = [];
  const reads: number[] = [];
  const quick = await interleave(rounds, {
    stat: () => each(() => client.call('files/stat', { session, path: '/workspace/small' }), stats),
    read: () =>
      each(() => client.call('files/read', { session, path: '/workspace/small', length: 10_240 }), reads),
    exec: () =>
      timed(() => run('docker', ['exec', agent, 'cat', '/workspace/small'], { encoding: 'buffer' })),
  });
  for (const [name, samples, rest] of [
    ['stat', quick.stat, stats],
    ['read of 10 KB', quick.read, reads],
  ] as const) {
    report.add({
      name,
      ours: median(rest),
      unit: 'ms',
      p99: p99(rest),
      target: { atMost: 1 },
      samples: rest.length,
    });
    report.add({
      name: `${name}, times faster than exec`,
      ours: median(samples),
      unit: 'ms',
      peer: { name: 'docker exec cat', value: median(quick.exec) },
      ratio: median(quick.exec) / median(samples),
      target: { atLeast: 40 },
      samples: rounds,
    });
  }

  const bare = `const {readdirSync, lstatSync} = require('fs'), times = [];
    for (let n = 0; n < 11; n++) { const start = performance.now();
      for (const name of readdirSync('/workspace/many')) lstatSync('/workspace/many/' + name);
      times.push(performance.now() - start); }
    console.log(times.sort((a, b) => a - b)[5])`;
  const lists = await interleave(rounds, {
    ours: async () => {
      const mine: number[] = [];
      for (let n = 0; n < 11; n += 1) {
        mine.push(await timed(() => client.call('files/list', { session, path: '/workspace/many' })));
      }
      return median(mine);
    },
    bare: async () => Number((await run('docker', ['exec', sidecar, 'node', '-e', bare])).stdout),
  });
  report.add({
    name: '1,000 entries with their stats',
    ours: median(lists.ours),
    unit: 'ms',
    p99: p99(lists.ours),
    peer: { name: 'readdir + lstat inside', value: median(lists.bare) },
    ratio: median(lists.ours) / median(lists.bare),
    target: { atMost: 5 },
    samples: rounds,
  });

  const upload = async (): Promise<void> => {
    const { upload: id } = await client.call('files/begin', {
      session,
      path: '/workspace/big',
      create: true,
      overwrite: true,
    });
    await using file = await open(big);
    const sent: Promise<void>[] = [];
    for (let offset = 0; offset < BIG; offset += PIECE) {
      const { buffer, bytesRead } = await file.read(payloads.acquire(PIECE), 0, PIECE, offset);
      const bytes = buffer.subarray(0, bytesRead);
      const appended = client.call('files/append', { session, upload: id, offset }, { bytes });
      sent.push(appended.then(() => payloads.release(bytes)));
      if (sent.length >= AHEAD) await sent.shift();
    }
    await Promise.all(sent);
    await client.call('files/commit', { session, upload: id, size: BIG });
  };
  const download = async (): Promise<void> => {
    const pull = (offset: number) =>
      client.callWithBytes('files/read', { session, path: '/workspace/big', offset, length: PIECE });
    let got = 0;
    let asked = 0;
    const pulls: ReturnType<typeof pull>[] = [];
    do {
      for (; pulls.length < AHEAD && asked < BIG; asked += PIECE) pulls.push(pull(asked));
      const piece = await pulls.shift();
      got += piece?.bytes.length ?? 0;
      piece?.release();
    } while (pulls.length > 0);
    if (got !== BIG) throw new Error(`read ${got} bytes`);
  };
  await upload();
  const large = await interleave(rounds, {
    read: () => timed(download),
    readCp: () => timed(() => dockerCommand(['cp', `${agent}:/workspace/big`, '-'])),
    readExec: () => timed(() => dockerCommand(['exec', agent, 'cat', '/workspace/big'])),
    write: () => timed(upload),
    writeCp: () => timed(() => dockerCommand(['cp', big, `${agent}:/workspace/copied`])),
    writeExec: () =>
      timed(() => dockerCommand(['exec', '-i', agent, 'sh', '-c', 'cat >/workspace/catted'], big)),
  });
  const speed = (samples: readonly number[]): number => BIG / 1000 / median(samples);
  for (const [name, ours, cp, exec] of [
    ['50 MB read', large.read, large.readCp, large.readExec],
    ['50 MB write, on disk', large.write, large.writeCp, large.writeExec],
  ] as const) {
    for (const [peer, samples, atLeast] of [
      ['docker cp', cp, 1],
      ['docker exec cat', exec, 0.5],
    ] as const) {
      report.add({
        name,
        ours: speed(ours),
        unit: 'MB/s',
        peer: { name: peer, value: speed(samples) },
        ratio: speed(ours) / speed(samples),
        target: { atLeast },
        samples: rounds,
      });
    }
  }

  const cold = await interleave(Math.min(rounds, 7), {
    first: async () => {
      await client.call('session/stop', { session, force: true });
      return await timed(() => client.call('files/list', { session, path: '/workspace' }));
    },
    raw: async () => {
      const container = await docker.createContainer(bareContainer(agentImage));
      const ms = await timed(() => container.start());
      await container.remove({ force: true });
      return ms;
    },
  });
  report.add({
    name: 'first list of a session that does not run',
    ours: median(cold.first),
    unit: 'ms',
    peer: { name: 'bare container start', value: median(cold.raw) },
    ratio: median(cold.first) / median(cold.raw),
    target: { atMost: 1.7 },
    samples: cold.first.length,
  });
  report.add({
    name: 'memory of the supervisor after it',
    ours: (await installation.supervisorRss()) / 2 ** 20,
    unit: 'MiB',
  });
} finally {
  await removeBareContainers(docker);
  await installation.dispose();
  await rm(project, { recursive: true, force: true });
}
if (!report.finish()) process.exitCode = 1;
