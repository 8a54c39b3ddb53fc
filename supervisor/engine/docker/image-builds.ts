import { request } from 'node:http';
import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../../protocol/errors.ts';
import { failpoint } from '../../base/failpoints.ts';
import {
  BUILD_DOCKERFILE,
  type BuildIo,
  type BuildSpec,
  type PreparedImage,
  type SandboxSpec,
} from '../port.ts';
import type { DockerApi } from './api.ts';
import { readBuildOutput } from './build-output.ts';
import type { Containers, EngineTimeouts } from './containers.ts';
import { engineUnavailable, EngineRefusal, isRefusal } from './errors.ts';
import { LABEL, type Naming } from './labels.ts';
import { bytesOfSteps, diskLimitError, watchDisk } from './setup-disk.ts';
import { isOfBuild } from './images.ts';
import { BuildImagesReply, ImageReply, parseReply } from './replies.ts';

/** How often the containers of a build are looked at, and how often they are measured. */
const WATCH_MS = 300;
const MEASURE_MS = 3000;
/** How long an engine may take to end a build that was cancelled. */
const END_MS = 20_000;
/** How often nothing of an ended build may be found before it is taken for gone. */
const QUIET_ROUNDS = 4;
const CPU_PERIOD = 100_000;
const OPEN_FILES = 16_384;

export interface ImageBuildsOptions {
  readonly api: () => Promise<DockerApi>;
  readonly containers: Containers;
  readonly naming: Naming;
  readonly timeouts: EngineTimeouts;
  /** As in `PreparationsOptions`. */
  readonly dataFolder: () => string | null;
}

/**
 * Builds images with the classic builder of the engine. All that it makes has our labels from the first step on, because the
 * Dockerfile sets them, and a container of a step has those of the image before it.
 */
export class ImageBuilds {
  readonly #options: ImageBuildsOptions;

  constructor(options: ImageBuildsOptions) {
    this.#options = options;
  }

  /** Labels for the Dockerfile: of what the build makes on the way, and of the image. */
  labels(setupId: string): { build: Record<string, string>; image: Record<string, string> } {
    const { naming } = this.#options;
    return {
      build: naming.labels('setup', { session: setupId }),
      image: naming.labels('prepared', { session: setupId }),
    };
  }

  async build(spec: BuildSpec, io: BuildIo): Promise<PreparedImage> {
    const what = `Cannot build the image of ${spec.sandbox.code.profile}`;
    const { containers, naming } = this.#options;
    const id = spec.sandbox.sessionId;
    const sidecar = (await containers.list(id)).find(
      ({ Labels, State }) => Labels?.[LABEL.role] === 'sidecar' && State === 'running',
    );
    if (sidecar === undefined)
      throw new HoldfastError('sandbox_lost', what, { why: 'the sidecar of the setup does not run' });
    const ended = new AbortController();
    const tooLarge = new AbortController();
    const signal = AbortSignal.any([io.signal, tooLarge.signal]);
    const { diskBytes, sandbox, baseBytes } = spec;
    const either = AbortSignal.any([signal, ended.signal]);
    const written = (): Promise<number> => this.#written(what, id);
    const watching = Promise.all([
      this.#limitSteps(what, sandbox, either),
      watchDisk({
        ...{ folder: this.#options.dataFolder(), written },
        ...{ limitBytes: diskBytes, everyMs: MEASURE_MS, signal: either },
      }).then((error) => {
        if (error !== null) tooLarge.abort(error);
      }),
    ]);
    const { repository, tag } = naming.preparedImage(id);
    const reference = `${repository}:${tag}`;
    let isDone = false;
    try {
      signal.throwIfAborted();
      const { memoryBytes, cpus } = sandbox.limits;
      const query = new URLSearchParams({
        version: '1',
        dockerfile: BUILD_DOCKERFILE,
        t: reference,
        nocache: 'true',
        rm: 'true',
        forcerm: 'true',
        networkmode: `container:${sidecar.Id}`,
        memory: String(memoryBytes),
        memswap: String(memoryBytes),
        cpuperiod: String(CPU_PERIOD),
        cpuquota: String(Math.round(cpus * CPU_PERIOD)),
        ulimits: JSON.stringify([
          { Name: 'nofile', Soft: OPEN_FILES, Hard: OPEN_FILES },
          // One file cannot outrun the measuring.
          { Name: 'fsize', Soft: diskBytes, Hard: diskBytes },
        ]),
        buildargs: JSON.stringify(spec.args),
      });
      const api = await this.#options.api();
      const answer = await post(api.socketPath, `/build?${query.toString()}`, spec.context(), what, signal);
      await readBuildOutput(answer, what, spec.steps, io);
      signal.throwIfAborted();
      await failpoint('setup.after-build');
      const made = await this.#inspect(what, reference);
      if ((await written()) > diskBytes) throw diskLimitError(diskBytes);
      const bytes = Math.max(0, (made.Size ?? 0) - baseBytes);
      isDone = true;
      return { reference, imageId: made.Id, bytes };
    } catch (error) {
      await containers.removeImage(reference).catch(() => undefined);
      signal.throwIfAborted();
      throw error;
    } finally {
      ended.abort();
      await watching;
      await this.#endContainers(what, id);
      await this.#removeStepImages(id, isDone);
    }
  }

  /** The engine may still be storing a step that was ended. */
  async #removeStepImages(setupId: string, isDone: boolean): Promise<void> {
    const until = performance.now() + END_MS;
    for (let quiet = 0; quiet < (isDone ? 1 : QUIET_ROUNDS) && performance.now() < until;) {
      const found = await this.removeLeftovers((one) => one === setupId);
      quiet = found === 0 || isDone ? quiet + 1 : 0;
      if (!isDone) await sleep(WATCH_MS);
    }
  }

  /**
   * Removes what builds made on the way and nothing needs, of those setups that the function names. Untagged images on which another
   * one is built stay. Returns how many there were.
   */
  async removeLeftovers(isLeft: (setupId: string) => boolean): Promise<number> {
    const { timeouts, naming } = this.#options;
    const what = 'Cannot remove what is left of a build';
    const api = await this.#options.api();
    const path = '/images/json';
    const query = { all: true, filters: naming.filters() };
    const reply = await api.json({ what, method: 'GET', path, query, timeoutMs: timeouts.queryMs });
    const images = parseReply(BuildImagesReply, what, reply)
      .filter(({ RepoTags }) => (RepoTags ?? []).every((tag) => tag === '<none>:<none>'))
      // Without its name the image itself is of no use either: a build that is ended then has not named it yet.
      .filter(({ Labels }) => isOfBuild(Labels?.[LABEL.role]) && isLeft(Labels?.[LABEL.session] ?? ''))
      .sort((one, other) => other.Created - one.Created);
    // Those of one second are in no order: a second pass finds what the first could not remove.
    let left = images.map(({ Id }) => Id);
    for (let before = Infinity; left.length > 0 && left.length < before;) {
      before = left.length;
      left = await this.#removeImages(api, what, left);
    }
    return images.length;
  }

  /** Those that something needs, and therefore stay. */
  async #removeImages(api: DockerApi, what: string, ids: readonly string[]): Promise<string[]> {
    const stayed: string[] = [];
    for (const id of ids) {
      const call = { method: 'DELETE', path: `/images/${id}`, query: { noprune: true } } as const;
      try {
        await api.json({ what, ...call, timeoutMs: this.#options.timeouts.operationMs });
      } catch (error) {
        if (isRefusal(error, 404)) continue;
        if (!isRefusal(error, 409)) throw error;
        stayed.push(id);
      }
    }
    return stayed;
  }

  /** The engine ends the steps of a build whose connection is gone, but not at once. */
  async #endContainers(what: string, setupId: string): Promise<void> {
    const { containers } = this.#options;
    const until = performance.now() + END_MS;
    for (let quiet = 0; quiet < 2 && performance.now() < until;) {
      const left = await this.#steps(setupId);
      for (const { Id } of left) await containers.remove(what, Id);
      quiet = left.length === 0 ? quiet + 1 : 0;
      if (quiet < 2) await sleep(WATCH_MS / 3);
    }
  }

  async #steps(setupId: string): Promise<{ readonly Id: string; readonly State: string }[]> {
    const listed = await this.#options.containers.list(setupId);
    return listed.filter(({ Labels }) => Labels?.[LABEL.role] === 'setup');
  }

  /** Limits the processes of each step. */
  async #limitSteps(what: string, { sessionId, limits }: SandboxSpec, signal: AbortSignal): Promise<void> {
    const limited = new Set<string>();
    while (!signal.aborted) {
      try {
        for (const { Id } of await this.#runningSteps(sessionId)) {
          if (limited.has(Id)) continue;
          await this.#limitProcesses(what, Id, limits.pids);
          limited.add(Id);
        }
      } catch {
        // A step may have ended meanwhile.
      }
      await sleep(WATCH_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  /** By all steps so far. */
  async #written(what: string, setupId: string): Promise<number> {
    const { containers, timeouts } = this.#options;
    const steps = await this.#runningSteps(setupId);
    const running = await Promise.all(steps.map(({ Id }) => containers.measure(what, Id)));
    const api = await this.#options.api();
    const query = { all: true };
    const reply = await api.json({
      ...{ what, method: 'GET', path: '/images/json', query },
      timeoutMs: timeouts.queryMs,
    });
    const finished = bytesOfSteps(parseReply(BuildImagesReply, what, reply), setupId);
    return running.reduce((sum, bytes) => sum + bytes, finished);
  }

  async #runningSteps(setupId: string): Promise<{ readonly Id: string }[]> {
    return (await this.#steps(setupId)).filter(({ State }) => State === 'running');
  }

  async #limitProcesses(what: string, id: string, pids: number): Promise<void> {
    const api = await this.#options.api();
    const path = `/containers/${id}/update`;
    const timeoutMs = this.#options.timeouts.queryMs;
    await api.json({ what, method: 'POST', path, body: { PidsLimit: pids }, timeoutMs });
  }

  async #inspect(what: string, reference: string): Promise<ReturnType<typeof ImageReply.parse>> {
    const api = await this.#options.api();
    const path = `/images/${reference}/json`;
    const reply = await api.json({ what, method: 'GET', path, timeoutMs: this.#options.timeouts.queryMs });
    return parseReply(ImageReply, what, reply);
  }
}

/** Sends a body of unknown length; the answer begins while the engine works. Without its connection the engine ends the build. */
function post(
  socketPath: string,
  path: string,
  body: Readable,
  what: string,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const headers = { Host: 'engine', 'Content-Type': 'application/x-tar', Connection: 'close' };
  const sent = request({ socketPath, path, method: 'POST', headers, agent: false, signal });
  sent.on('error', (error) => {
    body.destroy();
    reject(signal.aborted ? (signal.reason as Error) : engineUnavailable(what, socketPath, error));
  });
  sent.on('response', (answer) => {
    if (answer.statusCode === 200) {
      resolve(answer);
      return;
    }
    void readRefusal(answer).then((reason) => {
      reject(new EngineRefusal(what, answer.statusCode ?? 500, reason));
    });
  });
  body.on('error', (error) => {
    reject(error);
    sent.destroy();
  });
  body.pipe(sent);
  return promise;
}

async function readRefusal(answer: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes < 65_536) chunks.push(chunk);
    }
    const said: unknown = JSON.parse(Buffer.concat(chunks).toString('utf8'));
    if (typeof said === 'object' && said !== null && 'message' in said) return String(said.message);
  } catch {
    // Its status is what is known.
  }
  return `it answered with ${answer.statusCode ?? 'no status'}`;
}
