import { readdir, readFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import Docker from 'dockerode';
import { z } from 'zod';
import { type EgressEvent, EgressEventSchema } from '../../../protocol/egress.ts';
import { NameServer } from '../../egress-harness/name-server.ts';
import { Origin } from '../../egress-harness/origin.ts';
import { freePort } from '../../egress-harness/ports.ts';
import { TestHome } from '../../setup/test-home.ts';
import { writeProject } from '../../setup/profiles.ts';

/** The only address of this machine that a rule names; canaries listen on the others, at the same port. */
export const ALLOWED_ADDRESS = '127.0.0.3';
export const ALLOWED_HOST = 'open.test';
export const WILDCARD_DOMAIN = 'wild.test';

const SaidSchema = z.object({
  answer: z.base64().transform((text) => Buffer.from(text, 'base64').toString('latin1')),
  ended: z.enum(['open', 'reset', 'ended']),
  ms: z.number(),
});
export type ProxyReply = z.output<typeof SaidSchema> & { readonly status: number };

/**
 * A real pair of containers with a hostile agent, a server that it may reach as `open.test` and below `wild.test`,
 * and canaries on all other addresses of this machine that egress could be led to, at the same port.
 */
export class EgressFixture {
  readonly home: TestHome;
  readonly names: NameServer;
  readonly allowedOrigin: Origin;
  readonly canaries: ReadonlyMap<string, Origin>;
  readonly #docker = new Docker();
  #found: { readonly supervisor: number; readonly sidecar: number } | undefined;

  private constructor(
    home: TestHome,
    names: NameServer,
    allowedOrigin: Origin,
    canaries: ReadonlyMap<string, Origin>,
  ) {
    this.home = home;
    this.names = names;
    this.allowedOrigin = allowedOrigin;
    this.canaries = canaries;
  }

  static async create(env: Readonly<Record<string, string>> = {}): Promise<EgressFixture> {
    const port = await freePort();
    const open = await Origin.start({ host: ALLOWED_ADDRESS, port });
    const canaries = new Map<string, Origin>();
    for (const host of ['127.0.0.1', '127.0.0.2', '::1', ...gatewayAddresses()]) {
      // Not every machine has IPv6.
      const canary = await Origin.start({ host, port }).catch(() => null);
      if (canary !== null) canaries.set(host, canary);
    }
    const names = await NameServer.start({ [ALLOWED_HOST]: [ALLOWED_ADDRESS] });
    const home = await TestHome.create({ HOLDFAST_DNS: names.address, ...env });
    const fixture = new EgressFixture(home, names, open, canaries);
    await fixture.deploy('attack', [
      `${ALLOWED_HOST}:${port}`,
      `*.${WILDCARD_DOMAIN}:${port}`,
      `${ALLOWED_ADDRESS}:${port}`,
    ]);
    return fixture;
  }

  /** Deploys a profile with the hostile agent and these rules. */
  async deploy(name: string, hosts: readonly string[]): Promise<void> {
    const attacker = await readFile(join(import.meta.dirname, 'attacker.py'), 'utf8');
    const rules = hosts.map((host) => `{ host: "${host}" }`).join(', ');
    const project = await writeProject(this.home.projects, {
      'holdfast.yaml': `name: ${name}\nagent: { protocol: command, command: [python3, /agent/attacker.py] }\npersistence: persistent\nworkspace: { seed: false }\negress: [${rules}]\n`,
      'attacker.py': attacker,
    });
    await this.home.runOk(['deploy', project]);
  }

  get port(): number {
    return this.allowedOrigin.port;
  }

  /** Runs one attack of the agent to its end and returns the result. */
  async runAttack<T>(
    shape: z.ZodType<T>,
    order: { readonly deed: string; readonly [detail: string]: unknown },
    profile = 'attack',
  ): Promise<T> {
    const output = await this.home.runOk(['run', profile, '-'], JSON.stringify(order));
    return shape.parse(JSON.parse(output));
  }

  /** Sends bytes to the proxy, one connection each, and returns its responses. */
  async sendRequests(requests: readonly (string | Buffer)[], seconds = 5): Promise<ProxyReply[]> {
    const encoded = requests.map((one) => Buffer.from(one as string, 'latin1').toString('base64'));
    const said = await this.runAttack(z.array(SaidSchema), { deed: 'say', requests: encoded, seconds });
    return said.map((one) => ({ ...one, status: Number(/^HTTP\/1\.1 (\d{3})/.exec(one.answer)?.[1] ?? 0) }));
  }

  async decisions(): Promise<EgressEvent[]> {
    const lines = await this.home.runOk([
      'session',
      'events',
      'attack/default',
      '--type',
      'egress',
      '--json',
    ]);
    return lines
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => EgressEventSchema.parse(z.object({ data: z.unknown() }).parse(JSON.parse(line)).data));
  }

  /** Canaries that were reached. */
  reachedCanaries(): string[] {
    return [...this.canaries]
      .filter(([, { acceptedConnections }]) => acceptedConnections > 0)
      .map(([address]) => address);
  }

  async sessionId(): Promise<string> {
    const shown = await this.home.runJson(['session', 'show', 'attack/default']);
    return z.object({ session: z.object({ id: z.string() }) }).parse(shown).session.id;
  }

  /** Resident memory, bytes. The engine must run on this machine. */
  async residentMemory(): Promise<{ supervisor: number; sidecar: number }> {
    const { supervisor, sidecar } = await this.#pids();
    return { supervisor: await residentBytes(supervisor), sidecar: await residentBytes(sidecar) };
  }

  /** Open descriptors of the supervisor. */
  async openDescriptors(): Promise<number> {
    return (await readdir(`/proc/${(await this.#pids()).supervisor}/fd`)).length;
  }

  /** Process ids of supervisor and sidecar: neither may exit. */
  async #pids(): Promise<{ supervisor: number; sidecar: number }> {
    this.#found ??= await this.#findPids();
    return this.#found;
  }

  async #findPids(): Promise<{ supervisor: number; sidecar: number }> {
    const id = await this.home.containerId(await this.sessionId(), 'sidecar');
    if (id === null) throw new Error('there is no sidecar');
    const listing = (await this.#docker.getContainer(id).top({ ps_args: '-eo pid,args' })) as {
      Processes: string[][];
    };
    const node = listing.Processes.find((columns) => columns.some((text) => /^(\/\S*\/)?node\b/.test(text)));
    return { supervisor: await this.home.supervisorPid(), sidecar: Number(node?.[0]) };
  }

  async dispose(): Promise<void> {
    await this.home.dispose();
    await this.allowedOrigin.dispose();
    for (const canary of this.canaries.values()) await canary.dispose();
    await this.names.dispose();
  }
}

/** Addresses of this machine that containers may know. */
export function gatewayAddresses(): string[] {
  return Object.entries(networkInterfaces())
    .filter(([name]) => name.startsWith('docker') || name.startsWith('br-'))
    .flatMap(([, addresses]) => addresses ?? [])
    .filter(({ family }) => family === 'IPv4')
    .map(({ address }) => address);
}

async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}
