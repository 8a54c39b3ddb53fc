import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { connectSupervisor, type SupervisorConnection } from '../protocol/client/connect.ts';
import { supervisorCommand } from '../protocol/client/start.ts';

const ROOT = join(import.meta.dirname, '..');
const BuildSchema = z.object({ version: z.string(), id: z.string(), time: z.string() });
const ImagesSchema = z.object({ sidecar: z.string(), agent: z.string() });

/** The built program in a home of its own, for as long as a benchmark runs. */
export class Installation {
  readonly home: string;
  readonly client: SupervisorConnection['peer'];
  readonly agentImage: string;
  readonly pid: number;
  readonly #connection: SupervisorConnection;

  private constructor(home: string, connection: SupervisorConnection, agentImage: string) {
    this.home = home;
    this.#connection = connection;
    this.client = connection.peer;
    this.pid = connection.hello.supervisor.pid;
    this.agentImage = agentImage;
  }

  static async open(): Promise<Installation> {
    const read = async (name: string): Promise<unknown> =>
      JSON.parse(await readFile(join(ROOT, 'dist', name), 'utf8'));
    const build = BuildSchema.parse(await read('build.json'));
    const images = ImagesSchema.parse(await read('images.json'));
    const home = await mkdtemp(join(tmpdir(), 'holdfast-bench-'));
    const connection = await connectSupervisor({
      home,
      start: 'auto',
      program: { name: 'bench', version: build.version, build: build.id, builtAt: Date.parse(build.time) },
      command: supervisorCommand(process.execPath, join(ROOT, 'dist/holdfast.cjs')),
    });
    return new Installation(home, connection, images.agent);
  }

  /** Memory that the supervisor holds now, bytes. */
  async supervisorRss(): Promise<number> {
    const text = await readFile(`/proc/${this.pid}/status`, 'utf8');
    return Number(/VmRSS:\s+(\d+) kB/.exec(text)?.[1] ?? Number.NaN) * 1024;
  }

  async dispose(): Promise<void> {
    await this.client.call('purge', { force: true });
    this.#connection.close();
    await rm(this.home, { recursive: true, force: true });
  }
}
