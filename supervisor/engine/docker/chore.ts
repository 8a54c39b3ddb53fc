import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { pipeline } from 'node:stream/promises';
import type { Readable } from 'node:stream';
import type { MountSettings } from 'dockerode';
import { HoldfastError } from '../../../protocol/errors.ts';
import { GET_OWN_IMAGES, isOwnImage } from '../own-images.ts';
import type { DockerApi } from './api.ts';
import { choreBody } from './bodies.ts';
import type { Containers, Patience } from './containers.ts';
import { isRefusal, unanswered, unavailable } from './failures.ts';
import { takeApart, textOf } from './hijacked.ts';
import type { Naming } from './labels.ts';
import { WaitReply, parseReply } from './replies.ts';

export interface Chore {
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
export class Chores {
  readonly #api: () => Promise<DockerApi>;
  readonly #containers: Containers;
  readonly #naming: Naming;
  readonly #image: string;
  readonly #patience: Patience;
  readonly #busy = new Set<string>();

  constructor(
    api: () => Promise<DockerApi>,
    containers: Containers,
    naming: Naming,
    image: string,
    patience: Patience,
  ) {
    this.#api = api;
    this.#containers = containers;
    this.#naming = naming;
    this.#image = image;
    this.#patience = patience;
  }

  /** Names of the containers that are in use now. */
  get busy(): ReadonlySet<string> {
    return this.#busy;
  }

  async run(chore: Chore): Promise<void> {
    const name = this.#naming.chore(randomBytes(6).toString('hex'));
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

  async #create(chore: Chore, name: string): Promise<string> {
    const body = choreBody({
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
      throw isRefusal(error, 404) ? missingImage(this.#image, error) : error;
    }
  }

  /** The engine removes it when it has ended, so that one is not left behind when we are killed meanwhile. */
  async #runIn(chore: Chore, id: string): Promise<{ code: number; complaint: string }> {
    const api = await this.#api();
    const { what } = chore;
    const { quickMs } = this.#patience;
    const container = `/containers/${id}`;
    const streams = { stream: true, stdin: chore.stdin !== undefined, stdout: true, stderr: true };
    const attached = { query: streams, body: streams, timeoutMs: quickMs };
    const socket = await api.hijack({ what, method: 'POST', path: `${container}/attach`, ...attached });
    // A broken connection shows as the ends of both outputs; the exit code decides.
    socket.on('error', () => undefined);
    const limit = setTimeout(() => socket.destroy(), LIMIT_MS);
    let waiting: IncomingMessage | null = null;
    try {
      const { stdout, stderr } = takeApart(socket);
      const query = { condition: 'removed' };
      // Asked before it starts: afterwards there may be nothing left to wait for.
      waiting = await api.stream({
        what,
        method: 'POST',
        path: `${container}/wait`,
        query,
        timeoutMs: quickMs,
      });
      await this.#containers.start(what, id);
      const [complaint] = await Promise.all([
        textOf(stderr, SHOWN_BYTES),
        chore.stdout === undefined ? textOf(stdout, 0) : chore.stdout(stdout),
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
    const { workMs } = this.#patience;
    const late = unanswered(what, api.socketPath, workMs);
    const limit = setTimeout(() => waiting.destroy(late), workMs);
    try {
      return parseReply(WaitReply, what, JSON.parse(await textOf(waiting, SHOWN_BYTES))).StatusCode;
    } catch (error) {
      if (error instanceof HoldfastError) throw error;
      throw unavailable(what, api.socketPath, error);
    } finally {
      clearTimeout(limit);
    }
  }
}

/** An image that a container needs is not on the engine. */
export function missingImage(reference: string, cause?: unknown): HoldfastError {
  return new HoldfastError('image_not_found', `Image ${reference} is not on the engine`, {
    why: 'sandboxes need it',
    next: isOwnImage(reference) ? GET_OWN_IMAGES : `get it with \`docker pull ${reference}\``,
    details: { image: reference },
    cause,
  });
}
