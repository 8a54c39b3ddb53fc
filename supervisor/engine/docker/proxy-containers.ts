import { randomBytes } from 'node:crypto';
import { chmod, mkdir, readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { Duplex, type Readable } from 'node:stream';
import type { Socket } from 'node:net';
import type { MountSettings } from 'dockerode';
import { IN_PROXY } from '../../../egress-proxy/wire.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { Multiplexer } from '../../../protocol/wire/multiplexer.ts';
import { removeTree } from '../../store/remove-tree.ts';
import type { EgressProxyProcess } from '../port.ts';
import type { DockerApi } from './api.ts';
import { proxyOptions } from './container-options.ts';
import type { Containers, EngineTimeouts } from './containers.ts';
import { connectToSidecarSocket } from './dial.ts';
import { isRefusal } from './errors.ts';
import { missingImageError } from './helper-containers.ts';
import type { Naming } from './labels.ts';
import type { MountStrategy } from './mount-strategy.ts';
import { bindMount } from './mount-strategy.ts';
import { demultiplex, readText } from './multiplexed-stream.ts';

const WHAT = 'Cannot start the egress proxy';
const SHOWN_BYTES = 2048;
/** The folder of the home that has a folder for each socket. Nothing else removes what is in it. */
const FOLDER = 'egress';

export interface ProxyContainersOptions {
  readonly home: string;
  readonly image: string;
  readonly api: () => Promise<DockerApi>;
  readonly containers: Containers;
  readonly naming: Naming;
  readonly timeouts: EngineTimeouts;
  readonly mountStrategy: () => Promise<MountStrategy>;
}

/**
 * Runs the process that reads what sandboxes send, in a container that can reach nothing: no network, no capability, one
 * mount that it can write to, the folder of its socket, and none where the engine sees no files of this machine. The process ends with its stdin, which we hold, and the engine removes the container
 * then, so that none is left if we are killed.
 */
export class ProxyContainers {
  readonly #options: ProxyContainersOptions;
  readonly #busy = new Set<string>();
  readonly #tokens = new Set<string>();

  constructor(options: ProxyContainersOptions) {
    this.#options = options;
  }

  /** Names of the containers in use now. */
  get inUse(): ReadonlySet<string> {
    return this.#busy;
  }

  /** It takes connections when the promise resolves. */
  async start(): Promise<EgressProxyProcess> {
    const { naming } = this.#options;
    const strategy = await this.#options.mountStrategy();
    const token = randomBytes(6).toString('hex');
    const name = naming.egressProxy(token);
    this.#busy.add(name);
    this.#tokens.add(token);
    const leave = async (): Promise<void> => {
      this.#busy.delete(name);
      this.#tokens.delete(token);
      await removeTree(this.#folder(token));
    };
    try {
      const programs = await strategy.programsMount(IN_PROXY.runtime);
      if (!strategy.localPaths) return await this.#start(name, [programs], false, leave, carried);
      const folder = await this.#prepareFolder(token);
      const mounts = [programs, bindMount(folder, IN_PROXY.control)];
      return await this.#start(name, mounts, true, leave, async ({ stdout, ended }) => {
        if (!(await firstByte(stdout))) throw await ended();
        // It listens, and has heard nobody yet: from now on it can create no file.
        await chmod(folder, 0o755);
        return () => this.#dial(token);
      });
    } catch (error) {
      await leave();
      throw error;
    }
  }

  /** `connect` resolves with how to reach the process, when it runs. */
  async #start(
    name: string,
    mounts: MountSettings[],
    listens: boolean,
    leave: () => Promise<void>,
    connect: (attached: Attached) => Promise<() => Promise<Duplex>>,
  ): Promise<EgressProxyProcess> {
    const { containers, naming, image, timeouts } = this.#options;
    const body = proxyOptions(image, mounts, listens, naming.labels('helper'));
    let id: string;
    try {
      id = await containers.create(WHAT, name, body);
    } catch (error) {
      throw isRefusal(error, 404) ? missingImageError(image, error) : error;
    }
    let stopping: Promise<void> | null = null;
    const remove = (): Promise<void> => (stopping ??= containers.remove(WHAT, id).finally(leave));
    try {
      const attached = await this.#attach(id);
      const { socket, exited } = attached;
      const late = setTimeout(() => socket.destroy(), timeouts.operationMs);
      try {
        await containers.start(WHAT, id);
        const dial = await connect(attached);
        return {
          dial,
          exited,
          stop: () => {
            socket.destroy();
            return remove();
          },
        };
      } catch (error) {
        socket.destroy();
        throw error;
      } finally {
        clearTimeout(late);
      }
    } catch (error) {
      await remove();
      throw error;
    }
  }

  /** Our end of the container's input and output. The container ends when this does. */
  async #attach(id: string): Promise<Attached> {
    const { timeouts } = this.#options;
    const api = await this.#options.api();
    const streams = { stream: true, stdin: true, stdout: true, stderr: true };
    const socket = await api.hijack({
      what: WHAT,
      method: 'POST',
      path: `/containers/${id}/attach`,
      ...{ query: streams, body: streams, timeoutMs: timeouts.queryMs },
    });
    socket.on('error', () => undefined);
    const closed = new Promise<void>((done) => socket.once('close', () => done()));
    const { stdout, stderr } = demultiplex(socket);
    const complaint = readText(stderr, SHOWN_BYTES).catch(() => '');
    const exited = closed.then(async () => (await complaint).trim() || 'its container ended');
    const ended = async (): Promise<HoldfastError> => {
      socket.destroy();
      return new HoldfastError('engine_error', WHAT, { why: await exited });
    };
    return { socket, stdout, exited, ended };
  }

  async #dial(token: string): Promise<Duplex> {
    const socket = await connectToSidecarSocket(join(this.#folder(token), IN_PROXY.socketName));
    if (socket !== null) return socket;
    throw new HoldfastError('engine_unavailable', 'The egress proxy does not listen');
  }

  #folder(token: string): string {
    return join(resolve(this.#options.home), FOLDER, token);
  }

  /** A folder in which the process, whose uid nothing else has, can make its socket. The folder above is ours alone. */
  async #prepareFolder(token: string): Promise<string> {
    const folder = this.#folder(token);
    const above = join(folder, '..');
    await mkdir(above, { recursive: true, mode: 0o700 });
    // Leftovers of a supervisor that was killed: there is one for each home.
    for (const name of await readdir(above)) {
      if (!this.#tokens.has(name)) await removeTree(join(above, name));
    }
    await mkdir(folder, { mode: 0o700 });
    await chmod(folder, 0o777);
    return folder;
  }
}

interface Attached {
  readonly socket: Socket;
  readonly stdout: Readable;
  /** Resolves with the reason when the container has ended. */
  readonly exited: Promise<string>;
  /** The error of one that ended before it could be used. */
  readonly ended: () => Promise<HoldfastError>;
}

/** All connections on the container's input and output: this machine shares no files with the engine. */
async function carried({ socket, stdout, ended }: Attached): Promise<() => Promise<Duplex>> {
  const multiplexer = new Multiplexer({ carrier: Duplex.from({ readable: stdout, writable: socket }) });
  if (!(await multiplexer.greeted)) throw await ended();
  return () => Promise.resolve(multiplexer.open());
}

/** False if there is none. What follows it is read and dropped. */
function firstByte(stream: Readable): Promise<boolean> {
  const { promise, resolve: done } = Promise.withResolvers<boolean>();
  stream.on('data', () => done(true));
  stream.once('end', () => done(false));
  stream.once('error', () => done(false));
  stream.once('close', () => done(false));
  return promise;
}
