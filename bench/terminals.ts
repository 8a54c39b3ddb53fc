// From a key to its echo, through a terminal of a session and through `docker exec -it`: node bench/terminals.ts [--json] [--rounds N]
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Docker from 'dockerode';
import { Progress } from '../scripts/setup/progress.mjs';
import { ensureEditor } from '../scripts/setup/vscode.mjs';
import { Installation } from './installation.ts';
import { interleave, median, p99, Report } from './measure.ts';
import { deployOver } from '../test/setup/deploy.ts';

const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 21 : Number(process.argv[wanted + 1]);
const KEYS = 20;
const ECHO_MS = 30_000;

/** What is used of node-pty, which comes with VS Code and is what its terminals are made with. */
interface Pty {
  readonly onData: (hear: (text: string) => void) => void;
  readonly write: (text: string) => void;
  readonly kill: () => void;
}
interface NodePty {
  readonly spawn: (
    file: string,
    args: readonly string[],
    options: { cols: number; rows: number; env: NodeJS.ProcessEnv },
  ) => Pty;
}

const { codeServer } = await new Progress().step('VS Code', ensureEditor);
const pty = createRequire(import.meta.url)(join(codeServer, 'lib/vscode/node_modules/node-pty')) as NodePty;
const docker = new Docker();
const installation = await Installation.open();
const { client, home, agentImage } = installation;
const project = await mkdtemp(join(tmpdir(), 'holdfast-bench-terminals-'));
const report = new Report('Terminals', {
  docker: (await docker.version()).Version,
  image: agentImage,
});

/** A program on a terminal of its own, and what it has printed so far. */
class Screen {
  readonly #pty: Pty;
  #said = '';
  #heard: (() => void) | undefined;

  constructor(file: string, args: readonly string[]) {
    this.#pty = pty.spawn(file, args, { cols: 80, rows: 24, env: { ...process.env, HOLDFAST_HOME: home } });
    this.#pty.onData((text) => {
      this.#said += text;
      this.#heard?.();
    });
  }

  async until(text: string): Promise<void> {
    const heard = Promise.withResolvers<true>();
    const limit = setTimeout(
      () => heard.reject(new Error(`no ${JSON.stringify(text)} in ${JSON.stringify(this.#said)}`)),
      ECHO_MS,
    );
    this.#heard = () => {
      if (this.#said.includes(text)) heard.resolve(true);
    };
    this.#heard();
    await heard.promise.finally(() => clearTimeout(limit));
    this.#heard = undefined;
  }

  type(text: string): void {
    this.#said = '';
    this.#pty.write(text);
  }

  /** ms from a key to its echo: the median of some. */
  async echo(all: number[]): Promise<number> {
    const mine: number[] = [];
    for (let n = 0; n < KEYS; n += 1) {
      const key = String.fromCharCode(97 + (n % 26));
      const began = performance.now();
      this.type(key);
      await this.until(key);
      mine.push(performance.now() - began);
    }
    all.push(...mine);
    return median(mine);
  }

  end(): void {
    this.#pty.kill();
  }
}

const screens: Screen[] = [];
try {
  const profile =
    'name: bench-terminals\nagent: { protocol: command, command: [cat] }\nworkspace: { seed: false }\npersistence: persistent\n';
  await writeFile(join(project, 'holdfast.yaml'), profile);
  await deployOver(client, project);
  const session = (await client.call('session/create', { profile: 'bench-terminals' })).session.id;
  await client.call('session/resume', { session });
  const filters = { label: [`dev.holdfast.session=${session}`, 'dev.holdfast.role=agent'] };
  const container = (await docker.listContainers({ filters }))[0]?.Id ?? '';

  // The program does nothing: what comes back is the echo of the terminal in the sandbox.
  const program = ['sh', '-c', 'echo ready; exec sleep 600'];
  const bundle = join(import.meta.dirname, '../dist/holdfast.cjs');
  const ours = new Screen(process.execPath, [bundle, 'terminal', 'open', session, '--', ...program]);
  const exec = new Screen('docker', ['exec', '-it', container, ...program]);
  screens.push(ours, exec);
  await Promise.all(screens.map((screen) => screen.until('ready')));
  const all = { ours: [] as number[], exec: [] as number[] };
  const echoes = await interleave(rounds, {
    ours: () => ours.echo(all.ours),
    exec: () => exec.echo(all.exec),
  });
  report.add({
    name: 'from a key to its echo',
    ours: median(echoes.ours),
    unit: 'ms',
    p99: p99(all.ours),
    peer: { name: 'docker exec -it', value: median(echoes.exec) },
    ratio: median(echoes.ours) / median(echoes.exec),
    samples: all.ours.length,
  });
} finally {
  for (const screen of screens) screen.end();
  await installation.dispose();
  await rm(project, { recursive: true, force: true });
}
if (!report.finish()) process.exitCode = 1;
