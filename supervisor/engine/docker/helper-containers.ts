import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { pipeline } from 'node:stream/promises';
import type { Readable } from 'node:stream';
import type { MountSettings } from 'dockerode';
import { HoldfastError } from '../../../protocol/errors.ts';
import { HOW_TO_GET_HOLDFAST_IMAGES, isHoldfastImage } from '../holdfast-images.ts';
import type { DockerApi } from './api.ts';
import { helperOptions } from './container-options.ts';
import type { Containers, EngineTimeouts } from './containers.ts';
import { isRefusal, engineTimedOut, engineUnavailable } from './errors.ts';
import { demultiplex, readText } from './multiplexed-stream.ts';
import type { Naming } from './labels.ts';
import { WaitReply, parseReply } from './replies.ts';

export interface HelperCommand {
  /** The beginning of an error: "Cannot hand the workspace to its owner". */
  readonly what: string;
  readonly command: readonly string[];
  readonly mounts: MountSettings[];
  readonly user: { uid: number; gid: number } | 'root';
  readonly session?: string;
  readonly stdin?: Readable;
  /** Takes what the command prints. */
  readonly stdout?: (stream: Readable) => Promise<void>;
}

const SHOWN_BYTES = 4096;
/** Filling a volume with a large deploy is the longest. */
const LIMIT_MS = 120_000;

/** Runs one command in a short-lived container of the trusted image; nothing of it stays. */
export class HelperContainers {
  readonly #api: () => Promise<DockerApi>;
  readonly #containers: Containers;
  readonly #naming: Naming;
  readonly #image: string;
  readonly #patience: EngineTimeouts;
  readonly #busy = new Set<string>();

  constructor(
    api: () => Promise<DockerApi>,
    containers: Containers,
    naming: Naming,
    image: string,
    patience: EngineTimeouts,
  ) {
    this.#api = api;
    this.#containers = containers;
    this.#naming = naming;
    this.#image = image;
    this.#patience = patience;
  }

  /** Names of the containers that are in use now. */
  get inUse(): ReadonlySet<string> {
    return this.#busy;
  }

  async run(chore: HelperCommand): Promise<void> {
    const name = this.#naming.helper(randomBytes(6).toString('hex'));
    this.#busy.add(name);
    try {
      const id = await this.#create(chore, name);
      const { code, complaint } = await this.#runIn(chore, id).catch(async (error: unknown) => {
        await this.#containers.remove(chore.what, id);
        throw error;
      });
      if (code !== 0) {
        throw new HoldfastError('engine_error', chore.what, {
          why: `the helper container ended with ${code}: ${complaint}`,
          details: { exitCode: code },
        });
      }
    } finally {
      this.#busy.delete(name);
    }
  }

  async #create(chore: HelperCommand, name: string): Promise<string> {
    const body = helperOptions({
      image: this.#image,
      command: chore.command,
      mounts: chore.mounts,
      labels: this.#naming.labels('helper', chore.session === undefined ? {} : { session: chore.session }),
      user: chore.user,
      stdin: chore.stdin !== undefined,
    });
    try {
      return await this.#containers.create(chore.what, name, body);
    } catch (error) {
      throw isRefusal(error, 404) ? missingImageError(this.#image, error) : error;
    }
  }

  /** The engine removes it when it has ended, so that one is not left behind when we are killed meanwhile. */
  async #runIn(chore: HelperCommand, id: string): Promise<{ code: number; complaint: string }> {
    const api = await this.#api();
    const { what } = chore;
    const { queryMs } = this.#patience;
    const container = `/containers/${id}`;
    const streams = { stream: true, stdin: chore.stdin !== undefined, stdout: true, stderr: true };
    const attached = { query: streams, body: streams, timeoutMs: queryMs };
    const socket = await api.hijack({ what, method: 'POST', path: `${container}/attach`, ...attached });
    // A broken connection shows as the ends of both outputs; the exit code decides.
    socket.on('error', () => undefined);
    const limit = setTimeout(() => socket.destroy(), LIMIT_MS);
    let waiting: IncomingMessage | null = null;
    try {
      const { stdout, stderr } = demultiplex(socket);
      const query = { condition: 'removed' };
      // Asked before it starts: afterwards there may be nothing left to wait for.
      waiting = await api.stream({
        what,
        method: 'POST',
        path: `${container}/wait`,
        query,
        timeoutMs: queryMs,
      });
      await this.#containers.start(what, id);
      const [complaint] = await Promise.all([
        readText(stderr, SHOWN_BYTES),
        chore.stdout === undefined ? readText(stdout, 0) : chore.stdout(stdout),
        chore.stdin === undefined ? undefined : pipeline(chore.stdin, socket),
      ]);
      return { code: await this.#ended(what, api, waiting), complaint: complaint.trim() };
    } finally {
      clearTimeout(limit);
      socket.destroy();
      waiting?.destroy();
    }
  }

  async #ended(what: string, api: DockerApi, waiting: IncomingMessage): Promise<number> {
    const { operationMs } = this.#patience;
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

/** An image that a container needs is not on the engine. */
export function missingImageError(reference: string, cause?: unknown): HoldfastError {
  return new HoldfastError('image_not_found', `Image ${reference} is not on the engine`, {
    why: 'sandboxes need it',
    next: isHoldfastImage(reference)
      ? HOW_TO_GET_HOLDFAST_IMAGES
      : `get it with \`docker pull ${reference}\``,
    details: { image: reference },
    cause,
  });
}
