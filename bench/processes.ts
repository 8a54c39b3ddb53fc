// A line to a durable process and its output, and the same through `docker exec -i`: node bench/processes.ts [--json] [--rounds N]
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import Docker from 'dockerode';
import { connectToSidecarSocket } from '../supervisor/engine/docker/dial.ts';
import { SidecarClient } from '../supervisor/workspace/sidecar-client.ts';
import { SidecarProcessChannel } from '../supervisor/workspace/sidecar-process-channel.ts';
import { randomId } from '../test/fixtures/sidecar/turns.ts';
import { deployOver } from '../test/setup/deploy.ts';
import { Installation } from './installation.ts';
import { interleave, median, p99, Report } from './measure.ts';

const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 15 : Number(process.argv[wanted + 1]);
const LINES = 20;
const CHUNKS = 500;
const NS_PER_MS = 1e6;
/** As often as output is stored. */
const ACKNOWLEDGE_BYTES = 16_384;

/**
 * Answers each line with the time at which it came, and `stream` with 500 chunks at 500 per second, each the time at
 * which it was written. The monotonic clock is the machine's: it is the same in a container.
 */
const PROGRAM = `
import sys, time
out = sys.stdout
for line in sys.stdin:
    if line != "stream\\n":
        print(time.monotonic_ns(), flush=True)
        continue
    began = time.monotonic()
    for nth in range(${CHUNKS}):
        wait = began + nth / ${CHUNKS} - time.monotonic()
        if wait > 0: time.sleep(wait)
        print(time.monotonic_ns(), flush=True)
`;

/** ns of the monotonic clock. */
function clock(): number {
  return Number(process.hrtime.bigint());
}

/** A program that is spoken to in lines. `onLine` hears each line when it has arrived, with the time of that. */
abstract class Conversation {
  #heard: (line: string, at: number) => void = () => undefined;
  #rest = '';

  abstract send(line: string): Promise<void>;

  protected receive(bytes: Buffer): void {
    const at = clock();
    const lines = (this.#rest + bytes.toString()).split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) this.#heard(line, at);
  }

  /** The next `count` lines: when each was written, and when it arrived. */
  async hear(count: number): Promise<{ written: number; arrived: number }[]> {
    const times: { written: number; arrived: number }[] = [];
    await new Promise<void>((resolve) => {
      this.#heard = (line, arrived) => {
        times.push({ written: Number(line), arrived });
        if (times.length === count) resolve();
      };
    });
    return times;
  }

  /** ms from writing a line to the program's reading it: the median of some. */
  async input(all: number[]): Promise<number> {
    const mine: number[] = [];
    for (let n = 0; n < LINES; n += 1) {
      const answer = this.hear(1);
      const began = clock();
      await this.send('x\n');
      const [read] = await answer;
      mine.push(((read?.written ?? Number.NaN) - began) / NS_PER_MS);
    }
    all.push(...mine);
    return median(mine);
  }

  /** ms from the program's writing a chunk to its arrival: the median of 500. */
  async output(all: number[]): Promise<number> {
    const answer = this.hear(CHUNKS);
    await this.send('stream\n');
    const mine = (await answer).map(({ written, arrived }) => (arrived - written) / NS_PER_MS);
    all.push(...mine);
    return median(mine);
  }
}

class Durable extends Conversation {
  readonly #channel: SidecarProcessChannel;
  readonly #id = randomId('proc');
  #sent = 0;

  constructor(channel: SidecarProcessChannel) {
    super();
    this.#channel = channel;
  }

  async start(): Promise<void> {
    const id = this.#id;
    await this.#channel.start({ id, argv: ['python3', '-c', PROGRAM], env: {}, cwd: '/workspace' });
    void this.#follow();
  }

  async #follow(): Promise<void> {
    const id = this.#id;
    let acknowledged = 0;
    for (let offset = 0; ;) {
      const read = await this.#channel.read({ id, stream: 'stdout', offset, limit: 65_536, waitMs: 5000 });
      if (read.status.state === 'ended') return;
      this.receive(read.bytes);
      offset += read.bytes.length;
      if (offset - acknowledged < ACKNOWLEDGE_BYTES) continue;
      acknowledged = offset;
      void this.#channel.acknowledge(id, 'stdout', offset);
    }
  }

  async send(line: string): Promise<void> {
    const bytes = Buffer.from(line);
    const at = this.#sent;
    this.#sent += bytes.length;
    await this.#channel.write(this.#id, at, bytes);
  }

  async end(): Promise<void> {
    await this.#channel.remove(this.#id);
  }
}

class Exec extends Conversation {
  readonly #child: ChildProcess;

  constructor(container: string) {
    super();
    this.#child = spawn('docker', ['exec', '-i', container, 'python3', '-c', PROGRAM], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#child.stdout?.on('data', (bytes: Buffer) => this.receive(bytes));
  }

  send(line: string): Promise<void> {
    this.#child.stdin?.write(line);
    return Promise.resolve();
  }

  async end(): Promise<void> {
    this.#child.stdin?.end();
    await once(this.#child, 'exit');
  }
}

const docker = new Docker();
const installation = await Installation.open();
const { client, home, agentImage } = installation;
const project = await mkdtemp(join(tmpdir(), 'holdfast-bench-processes-'));
const report = new Report('Durable processes', {
  docker: (await docker.version()).Version,
  image: agentImage,
});
const ends: (() => unknown)[] = [];
try {
  const profile =
    'name: bench-processes\nagent: { protocol: command, command: [cat] }\nworkspace: { seed: false }\npersistence: persistent\n';
  await writeFile(join(project, 'holdfast.yaml'), profile);
  await deployOver(client, project);
  const session = (await client.call('session/create', { profile: 'bench-processes' })).session.id;
  await client.call('session/resume', { session });
  const filters = { label: [`dev.holdfast.session=${session}`, 'dev.holdfast.role=agent'] };
  const container = (await docker.listContainers({ filters }))[0]?.Id ?? '';
  const socket = await connectToSidecarSocket(join(home, 'run', session, 'control/sidecar.sock'));
  if (socket === null) throw new Error('the sidecar of the session cannot be reached');
  const sidecar = await SidecarClient.connect(() => Promise.resolve(socket), session);
  ends.push(() => sidecar.close());

  const ours = new Durable(new SidecarProcessChannel((use) => use(sidecar)));
  await ours.start();
  ends.push(() => ours.end());
  const exec = new Exec(container);
  ends.push(() => exec.end());
  await sleep(1000);
  const warm: number[] = [];
  await ours.input(warm);
  await exec.input(warm);

  const lines = { ours: [] as number[], exec: [] as number[] };
  const inputs = await interleave(rounds, {
    ours: () => ours.input(lines.ours),
    exec: () => exec.input(lines.exec),
  });
  report.add({
    name: 'from a line to its program',
    ours: median(inputs.ours),
    unit: 'ms',
    p99: p99(lines.ours),
    peer: { name: 'docker exec -i', value: median(inputs.exec) },
    target: { atMost: 5 },
    samples: lines.ours.length,
  });
  const chunks = { ours: [] as number[], exec: [] as number[] };
  await interleave(Math.ceil(rounds / 3), {
    ours: () => ours.output(chunks.ours),
    exec: () => exec.output(chunks.exec),
  });
  report.add({
    name: 'p99 of chunks at 500/s',
    ours: p99(chunks.ours),
    unit: 'ms',
    peer: { name: 'docker exec -i', value: p99(chunks.exec) },
    target: { atMost: 10 },
    samples: chunks.ours.length,
  });
} finally {
  for (const end of ends.reverse()) await end();
  await installation.dispose();
  await rm(project, { recursive: true, force: true });
}
if (!report.finish()) process.exitCode = 1;
