import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { setImmediate as immediately, setTimeout as sleep } from 'node:timers/promises';
import type { Readable } from 'node:stream';
import type { MountSettings } from 'dockerode';
import { HoldfastError } from '../../../protocol/errors.ts';
import { HOW_TO_GET_HOLDFAST_IMAGES, isHoldfastImage } from '../holdfast-images.ts';
import type { DockerApi } from './api.ts';
import { helperOptions } from './container-options.ts';
import type { Containers, EngineTimeouts } from './containers.ts';
import { isRefusal, engineTimedOut, engineUnavailable } from './errors.ts';
import { demultiplex, readText } from './multiplexed-stream.ts';
import { isPreparedImage, type Naming } from './labels.ts';
import { WaitReply, parseReply } from './replies.ts';

export interface HelperCommand {
  /** The beginning of an error: "Cannot change the owner of the workspace". */
  readonly what: string;
  readonly command: readonly string[];
  readonly mounts: MountSettings[];
  readonly user: { uid: number; gid: number } | 'root';
  readonly session?: string;
  readonly stdin?: Readable;
  /** Receives what the command prints. */
  readonly stdout?: (stream: Readable) => Promise<void>;
}

const SHOWN_BYTES = 4096;
/** The longest command fills a volume with a large deploy. */
const LIMIT_MS = 120_000;

/** Runs single commands in short-lived containers of the trusted image, and leaves nothing behind. */
export class HelperContainers {
  readonly #api: () => Promise<DockerApi>;
  readonly #containers: Containers;
  readonly #naming: Naming;
  readonly #image: string;
  readonly #timeouts: EngineTimeouts;
  /** By name, with what ends when the container is gone. */
  readonly #busy = new Map<string, Promise<void>>();

  constructor(
    api: () => Promise<DockerApi>,
    containers: Containers,
    naming: Naming,
    image: string,
    timeouts: EngineTimeouts,
  ) {
    this.#api = api;
    this.#containers = containers;
    this.#naming = naming;
    this.#image = image;
    this.#timeouts = timeouts;
  }

  /** Names of the helper containers in use now. */
  get inUse(): ReadonlySet<string> {
    return new Set(this.#busy.keys());
  }

  async run(command: HelperCommand): Promise<void> {
    const name = this.#naming.helper(randomBytes(6).toString('hex'));
    const running = this.#runAs(name, command);
    this.#busy.set(name, running);
    try {
      await running;
    } finally {
      this.#busy.delete(name);
    }
  }

  /** Waits until none is in use, at most `ms`, and then removes those that still are. */
  async finish(ms: number): Promise<void> {
    const until = performance.now() + ms;
    for (let left = ms; this.#busy.size > 0 && left > 0; left = until - performance.now()) {
      const ended = new AbortController();
      const late = sleep(left, undefined, { signal: ended.signal }).catch(() => undefined);
      await Promise.race([Promise.allSettled(this.#busy.values()), late]);
      ended.abort();
      // Whoever waited for one may start the next.
      await immediately();
    }
    const what = 'Cannot remove a helper container';
    await Promise.all([...this.#busy.keys()].map((name) => this.#containers.remove(what, name)));
  }

  async #runAs(name: string, command: HelperCommand): Promise<void> {
    const id = await this.#create(command, name);
    const { code, errorOutput } = await this.#runIn(command, id).catch(async (error: unknown) => {
      await this.#containers.remove(command.what, id);
      throw error;
    });
    if (code === 0) return;
    throw new HoldfastError('engine_error', command.what, {
      why: `the helper container ended with ${code}: ${errorOutput}`,
      details: { exitCode: code },
    });
  }

  async #create(command: HelperCommand, name: string): Promise<string> {
    const body = helperOptions({
      image: this.#image,
      command: command.command,
      mounts: command.mounts,
      labels: this.#naming.labels(
        'helper',
        command.session === undefined ? {} : { session: command.session },
      ),
      user: command.user,
      stdin: command.stdin !== undefined,
    });
    try {
      return await this.#containers.create(command.what, name, body);
    } catch (error) {
      throw isRefusal(error, 404) ? missingImageError(this.#image, error) : error;
    }
  }

  /** The engine removes the container when it exits, so none is left if we are killed meanwhile. */
  async #runIn(command: HelperCommand, id: string): Promise<{ code: number; errorOutput: string }> {
    const api = await this.#api();
    const { what } = command;
    const { queryMs } = this.#timeouts;
    const container = `/containers/${id}`;
    const streams = { stream: true, stdin: command.stdin !== undefined, stdout: true, stderr: true };
    const attached = { query: streams, body: streams, timeoutMs: queryMs };
    const socket = await api.hijack({ what, method: 'POST', path: `${container}/attach`, ...attached });
    // A broken connection ends both outputs; the exit code decides.
    socket.on('error', () => undefined);
    const limit = setTimeout(() => socket.destroy(), LIMIT_MS);
    let waiting: IncomingMessage | null = null;
    try {
      const { stdout, stderr } = demultiplex(socket);
      const query = { condition: 'removed' };
      // Requested before the start: afterwards the container may be gone.
      waiting = await api.stream({
        what,
        method: 'POST',
        path: `${container}/wait`,
        query,
        timeoutMs: queryMs,
      });
      await this.#containers.start(what, id);
      const [errorOutput] = await Promise.all([
        readText(stderr, SHOWN_BYTES),
        command.stdout === undefined ? readText(stdout, 0) : command.stdout(stdout),
        command.stdin === undefined ? undefined : pipeline(command.stdin, socket),
      ]);
      return { code: await this.#ended(what, api, waiting), errorOutput: errorOutput.trim() };
    } finally {
      clearTimeout(limit);
      socket.destroy();
      waiting?.destroy();
    }
  }

  async #ended(what: string, api: DockerApi, waiting: IncomingMessage): Promise<number> {
    const { operationMs } = this.#timeouts;
    const late = engineTimedOut(what, api.socketPath, operationMs);
    const limit = setTimeout(() => waiting.destroy(late), operationMs);
    try {
      return parseReply(WaitReply, what, JSON.parse(await readText(waiting, SHOWN_BYTES))).StatusCode;
    } catch (error) {
      if (error instanceof HoldfastError) throw error;
      throw engineUnavailable(what, api.socketPath, error);
    } finally {
      clearTimeout(limit);
    }
  }
}

/** A container needs an image that the engine does not have. */
export function missingImageError(reference: string, cause?: unknown): HoldfastError {
  return new HoldfastError('image_not_found', `Image ${reference} is not on the engine`, {
    why: 'sandboxes require it',
    next: isHoldfastImage(reference)
      ? HOW_TO_GET_HOLDFAST_IMAGES
      : isPreparedImage(reference)
        ? 'deploy the profile again: its setup made this image'
        : `get it with \`docker pull ${reference}\``,
    details: { image: reference },
    cause,
  });
}
