import { randomBytes } from 'node:crypto';
import { pipeline } from 'node:stream/promises';
import type { Readable } from 'node:stream';
import type { MountSettings } from 'dockerode';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { DockerApi } from './api.ts';
import { choreBody } from './bodies.ts';
import type { Containers, Patience } from './containers.ts';
import { isRefusal } from './failures.ts';
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
  /** Called once the command runs. */
  readonly meanwhile?: () => Promise<void>;
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
      try {
        await this.#runIn(chore, id);
      } finally {
        await this.#containers.remove(chore.what, id);
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

  async #runIn(chore: Chore, id: string): Promise<void> {
    const api = await this.#api();
    const { what } = chore;
    const streams = { stream: true, stdin: chore.stdin !== undefined, stdout: true, stderr: true };
    const socket = await api.hijack({
      what,
      method: 'POST',
      path: `/containers/${id}/attach`,
      query: streams,
      body: streams,
      timeoutMs: this.#patience.quickMs,
    });
    const limit = setTimeout(() => socket.destroy(), LIMIT_MS);
    try {
      const { stdout, stderr } = takeApart(socket);
      // A broken connection shows as the ends of both outputs; the exit code decides.
      socket.on('error', () => undefined);
      await this.#containers.start(what, id);
      const [complaint] = await Promise.all([
        textOf(stderr, SHOWN_BYTES),
        chore.stdout === undefined ? textOf(stdout, 0) : chore.stdout(stdout),
        chore.stdin === undefined ? undefined : pipeline(chore.stdin, socket),
        chore.meanwhile?.(),
      ]);
      const path = `/containers/${id}/wait`;
      const answer = await api.json({ what, method: 'POST', path, timeoutMs: this.#patience.workMs });
      const { StatusCode } = parseReply(WaitReply, what, answer);
      if (StatusCode !== 0) {
        throw new HoldfastError('engine_error', what, {
          why: `the helper container ended with ${StatusCode}: ${complaint.trim()}`,
          details: { exitCode: StatusCode },
        });
      }
    } finally {
      clearTimeout(limit);
      socket.destroy();
    }
  }
}

/** The trusted image is not on the engine. */
export function missingImage(reference: string, cause?: unknown): HoldfastError {
  return new HoldfastError('image_not_found', `Image ${reference} is not on the engine`, {
    why: 'sandboxes need it',
    next: `get it with \`docker pull ${reference}\`, or build Holdfast's own with \`npm run images\``,
    details: { image: reference },
    cause,
  });
}
