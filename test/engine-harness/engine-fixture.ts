import { randomBytes } from 'node:crypto';
import { chmodSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type Docker from 'dockerode';
import { pack } from 'tar-stream';
import { DockerEngine } from '../../supervisor/engine/docker/engine.ts';
import type { DockerEngineOptions } from '../../supervisor/engine/docker/engine.ts';
import type { EngineExec, ExecSpec, SandboxSpec } from '../../supervisor/engine/port.ts';
import { registerHome } from '../setup/run-homes.ts';

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';
export const BUSYBOX = '/opt/holdfast/busybox';

export function randomId(length: number): string {
  return [...randomBytes(length)].map((byte) => ALPHABET.charAt(byte % 32)).join('');
}

/** An almost empty image whose configuration must have no effect. */
export async function bareImage(docker: Docker): Promise<{ reference: string; remove: () => Promise<void> }> {
  const archive = pack();
  archive.entry({ name: 'data', type: 'directory', mode: 0o777 });
  archive.entry({ name: 'data/from-the-image' }, 'hello');
  archive.finalize();
  const repo = 'holdfast-test/bare';
  const tag = randomId(8);
  const changes = [
    'ENV IMAGE_SAYS=hello PATH=/opt/holdfast:/usr/bin',
    'ENTRYPOINT ["/no/such/program"]',
    'CMD ["nor this"]',
    'USER 0:0',
    'WORKDIR /elsewhere',
    'VOLUME /data',
    'VOLUME /workspace',
    'HEALTHCHECK --interval=1s CMD ["/no/such/check"]',
  ];
  const answer = await docker.importImage(archive as unknown as NodeJS.ReadableStream, {
    repo,
    tag,
    changes,
  });
  for await (const _ of answer) {
    // The import is complete when the response ends.
  }
  const reference = `${repo}:${tag}`;
  const remove = async (): Promise<void> => {
    await docker.getImage(reference).remove({ force: true });
  };
  return { reference, remove };
}

export interface EngineFixtureOptions extends Partial<DockerEngineOptions> {
  readonly image: string;
}

/** A home with an engine that runs stand-ins for the sidecar's program and the runner. */
export class EngineFixture {
  readonly folder: string;
  readonly homeId = randomId(26);
  readonly options: DockerEngineOptions;
  readonly problems: unknown[] = [];
  readonly #image: string;
  engine: DockerEngine;

  constructor({ image, ...options }: EngineFixtureOptions) {
    this.folder = options.home ?? mkdtempSync(join(tmpdir(), 'hfe-home-'));
    this.#image = image;
    registerHome(this.homeId);
    const built = join(this.folder, 'built');
    mkdirSync(built, { recursive: true });
    cpSync(join(import.meta.dirname, 'stand-in-sidecar.cjs'), join(built, 'sidecar.cjs'));
    cpSync(join(import.meta.dirname, 'stand-in-runner.sh'), join(built, 'runner.sh'));
    this.options = {
      home: this.folder,
      homeId: this.homeId,
      sidecarImage: __SIDECAR_IMAGE__,
      programsDirectory: built,
      reportBackgroundError: (what, error) => this.problems.push({ what, error }),
      ...options,
    };
    this.engine = new DockerEngine(this.options);
  }

  /** Creates a session's workspace and code, and returns its spec. */
  async createSession(
    change: Partial<SandboxSpec> = {},
    backing: 'directory' | 'volume' = 'directory',
  ): Promise<SandboxSpec> {
    const sessionId = `ses-${randomId(16)}`;
    // As root each session has its own uid; otherwise it must be ours.
    const uid = process.getuid?.() === 0 ? 231072 : (process.getuid?.() ?? 0);
    const gid = process.getgid?.() === 0 ? 231072 : (process.getgid?.() ?? 0);
    const spec: SandboxSpec = {
      sessionId,
      generation: 1,
      image: this.#image,
      uid,
      gid,
      workspace: { sessionId, backing, uid, gid },
      code: { profile: 'tiny', version: 1 },
      env: {},
      limits: { memoryBytes: 128 * 2 ** 20, cpus: 1, pids: 64 },
      runtime: 'default',
      ...change,
    };
    await this.#code(spec.code);
    await this.engine.createWorkspace(spec.workspace);
    return spec;
  }

  async #code({ profile, version }: SandboxSpec['code']): Promise<void> {
    const folder = join(this.folder, 'deploys', profile, String(version));
    mkdirSync(folder, { recursive: true });
    chmodSync(folder, 0o755);
    writeFileSync(join(folder, 'agent.py'), `version ${version}\n`);
    chmodSync(join(folder, 'agent.py'), 0o644);
    await this.engine.publishCode(profile, version, folder);
  }

  async publishCode(profile: string, version: number): Promise<void> {
    await this.#code({ profile, version });
  }

  /** Replaces the driver, as a new supervisor would. */
  async restart(): Promise<void> {
    await this.engine.close();
    this.engine = new DockerEngine(this.options);
  }

  /** Closes the driver and removes all objects of this home from the engine. */
  async close(): Promise<void> {
    try {
      const objects = await this.engine.observe();
      for (const kind of ['container', 'volume']) {
        for (const object of objects.filter((one) => one.kind === kind))
          await this.engine.removeObject(object);
      }
    } finally {
      await this.engine.close();
      rmSync(this.folder, { recursive: true, force: true });
    }
  }
}

export function execSpec(command: readonly string[], change: Partial<ExecSpec> = {}): ExecSpec {
  return {
    execId: `exec-${randomId(16)}`,
    command,
    env: {},
    cwd: '/workspace',
    tty: null,
    stdin: false,
    ...change,
  };
}

export async function collectExec(
  exec: EngineExec,
): Promise<{ stdout: string; stderr: string; code: number | null }> {
  const [stdout, stderr, code] = await Promise.all([
    readText(exec.stdout),
    exec.stderr === null ? '' : readText(exec.stderr),
    exec.exited,
  ]);
  return { stdout, stderr, code };
}

/** Runs a shell command in the agent container. */
export async function runShell(
  engine: DockerEngine,
  sessionId: string,
  line: string,
): ReturnType<typeof collectExec> {
  return collectExec(await engine.exec(sessionId, execSpec([BUSYBOX, 'sh', '-c', line])));
}

/** Sends a word to the sidecar's stand-in and returns the response. */
export async function echo(stream: Duplex, word: string): Promise<string> {
  stream.end(word);
  return readText(stream);
}

export async function readText(stream: NodeJS.ReadableStream): Promise<string> {
  const parts: Buffer[] = [];
  for await (const chunk of stream) parts.push(Buffer.from(chunk));
  return Buffer.concat(parts).toString('utf8');
}

export async function waitUntil(check: () => boolean | Promise<boolean>, within = 10_000): Promise<void> {
  const until = performance.now() + within;
  while (!(await check())) {
    if (performance.now() > until) throw new Error(`not within ${within} ms: ${check.toString()}`);
    await sleep(20);
  }
}
