import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import Docker from 'dockerode';
import type { SupervisorConnection } from '../../../protocol/client/connect.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { MethodName, Params, Result } from '../../../protocol/methods.ts';
import { removeTree } from '../../../supervisor/store/remove-tree.ts';
import { registerHome } from '../../setup/run-homes.ts';
import { connectTo } from '../../setup/test-client.ts';
import { formatFailpoints, type Faults, SupervisorProcess } from './supervisor-process.ts';

export const BUNDLE = join(import.meta.dirname, '../../../dist/holdfast.cjs');
const HOME_LABEL = 'dev.holdfast.home';
const ANSWER_MS = 20_000;

export interface FaultHomeOptions {
  /** Where the home is; default: a new folder below the system's temporary one. Must not exist. */
  readonly path?: string;
  readonly bundle?: string;
  /** For every supervisor of this home: `DOCKER_HOST` of a private engine, say. */
  readonly env?: Readonly<Record<string, string>>;
  readonly docker?: Docker;
}

/** Something with our home's label on the engine. */
export interface EngineObject {
  readonly kind: 'container' | 'volume';
  readonly id: string;
  readonly name: string;
  readonly state: string;
  readonly labels: Readonly<Record<string, string>>;
}

/**
 * An installation whose supervisor a test starts, hurts and starts again. Given a failpoint it dies there by itself:
 *
 *     await home.start({ 'create.after-row': 'kill' });
 *     await home.lost(home.call('session/create', …));   // the request dies with it
 *     await home.start();                                 // the next one puts things right
 *     await expectSettled(home);
 */
export class FaultHome {
  readonly path: string;
  readonly docker: Docker;
  readonly #bundle: string;
  readonly #env: Readonly<Record<string, string>>;
  readonly #folder: string | null;
  readonly #started: SupervisorProcess[] = [];
  #connection: SupervisorConnection | null = null;

  private constructor(path: string, folder: string | null, options: FaultHomeOptions) {
    this.path = path;
    this.#folder = folder;
    this.#bundle = options.bundle ?? BUNDLE;
    this.#env = options.env ?? {};
    this.docker = options.docker ?? new Docker();
  }

  static async create(options: FaultHomeOptions = {}): Promise<FaultHome> {
    if (options.path !== undefined) return new FaultHome(options.path, null, options);
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-fault-'));
    return new FaultHome(join(folder, 'home'), folder, options);
  }

  /** What every program of this home gets in its environment. */
  get env(): Readonly<Record<string, string>> {
    return this.#env;
  }

  /** The id in the label of everything of this home. */
  async readId(): Promise<string> {
    return (await readFile(join(this.path, 'id'), 'utf8')).trim();
  }

  /** Starts a supervisor and waits until it answers. */
  async start(faults: Faults = {}, options: { readonly bundle?: string } = {}): Promise<SupervisorProcess> {
    const supervisor = this.spawn(faults, options);
    const until = Date.now() + ANSWER_MS;
    for (;;) {
      if (!supervisor.isRunning) {
        const { code, signal } = await supervisor.exited;
        throw new Error(
          `the supervisor ended with ${String(code ?? signal)}:\n${supervisor.stderr}${await this.readLog()}`,
        );
      }
      try {
        await this.connect();
        registerHome(await this.readId());
        return supervisor;
      } catch (error) {
        if (Date.now() > until) throw error;
        await sleep(20);
      }
    }
  }

  /** Starts a supervisor and waits for nothing: it may be meant to die at once. */
  spawn(faults: Faults = {}, options: { readonly bundle?: string } = {}): SupervisorProcess {
    this.#disconnect();
    const supervisor = SupervisorProcess.spawn(options.bundle ?? this.#bundle, this.path, {
      ...this.#env,
      HOLDFAST_FAILPOINTS: formatFailpoints(faults),
    });
    this.#started.push(supervisor);
    return supervisor;
  }

  /** A connection after hello, kept until the supervisor ends. */
  async connect(): Promise<SupervisorConnection> {
    if (this.#connection !== null && !this.#connection.peer.isClosed) return this.#connection;
    this.#connection = await connectTo(this.path, ANSWER_MS);
    return this.#connection;
  }

  async call<M extends MethodName>(method: M, params: Params<M>, bytes?: Uint8Array): Promise<Result<M>> {
    const { peer } = await this.connect();
    return await peer.call(method, params, { bytes });
  }

  /** The request must be lost with its supervisor: neither answered nor refused. */
  async expectConnectionLost(request: Promise<unknown>): Promise<void> {
    try {
      await request;
    } catch (error) {
      if (error instanceof HoldfastError && error.code === 'connection_closed') return;
      throw error;
    }
    throw new Error('the request was answered; its failpoint was not reached');
  }

  /** Everything of this home on the engine. `id`: its id, where its folder is gone. */
  async listObjects(id?: string): Promise<EngineObject[]> {
    const filters = { label: [`${HOME_LABEL}=${id ?? (await this.readId())}`] };
    const [containers, { Volumes }] = await Promise.all([
      this.docker.listContainers({ all: true, filters }),
      this.docker.listVolumes({ filters }),
    ]);
    return [
      ...containers.map(({ Id, Names, State, Labels }) => ({
        kind: 'container' as const,
        id: Id,
        name: (Names[0] ?? '').replace(/^\//, ''),
        state: State,
        labels: Labels,
      })),
      ...Volumes.map(({ Name, Labels }) => ({
        kind: 'volume' as const,
        id: Name,
        name: Name,
        state: 'there',
        labels: Labels,
      })),
    ];
  }

  async readLog(): Promise<string> {
    return await readFile(join(this.path, 'logs/supervisor.log'), 'utf8').catch(() => '(no log)');
  }

  /** Ends every supervisor of this test and removes all of the home, on the engine and on disk. */
  async dispose(): Promise<void> {
    this.#disconnect();
    for (const supervisor of this.#started) await supervisor.kill();
    // Without an id the home never came to be, or was removed by the test.
    const id = await this.readId().catch(() => null);
    if (id !== null) {
      registerHome(id);
      await this.#removeObjects();
      // What a killed supervisor asked for last may come to be only now.
      await sleep(200);
      await this.#removeObjects();
      await removeTree(this.path);
    }
    if (this.#folder !== null) await rm(this.#folder, { recursive: true, force: true });
  }

  async #removeObjects(): Promise<void> {
    const objects = await this.listObjects();
    const of = (wanted: EngineObject['kind']) => objects.filter(({ kind }) => kind === wanted);
    // Containers first: a volume in use cannot be removed.
    await Promise.all(
      of('container').map(({ id }) =>
        this.docker.getContainer(id).remove({ force: true, v: true }).catch(unlessGone),
      ),
    );
    await Promise.all(
      of('volume').map(({ id }) => this.docker.getVolume(id).remove({ force: true }).catch(unlessGone)),
    );
  }

  #disconnect(): void {
    this.#connection?.close();
    this.#connection = null;
  }
}

/** A helper container may end and go by itself, or be on its way out. */
function unlessGone(error: unknown): void {
  const status = error instanceof Error && 'statusCode' in error ? error.statusCode : undefined;
  if (status !== 404 && status !== 409) throw error;
}
