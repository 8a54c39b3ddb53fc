import { setTimeout as sleep } from 'node:timers/promises';
import type { Duplex } from 'node:stream';
import { HoldfastError } from '../../../protocol/errors.ts';
import { failpoint } from '../../base/failpoints.ts';
import type { SandboxSpec } from '../port.ts';
import { agentOptions, sidecarOptions } from './container-options.ts';
import type { NetworkNamespace } from './container-options.ts';
import { missingImageError } from './helper-containers.ts';
import type { Containers } from './containers.ts';
import { EngineRefusal, isRefusal } from './errors.ts';
import type { Naming } from './labels.ts';
import { toSandboxContainer } from './observation.ts';
import type { SandboxContainer } from './observation.ts';
import type { MountStrategy, SandboxMounts } from './mount-strategy.ts';
import { planSandbox } from './plan.ts';
import { specHashes } from './spec-hash.ts';

export interface SandboxesOptions {
  readonly containers: Containers;
  readonly naming: Naming;
  readonly sidecarImage: string;
  /** Hash of the program files. */
  readonly programsHash: string;
  mountStrategy(): Promise<MountStrategy>;
  /** Number of CPUs of the engine; 0 if it does not report it. */
  cpuCount(): number;
  watch(listener: (change: { sessionId: string | null }) => void): () => void;
}

const DIAL_MS = 10_000;
const DIAL_PAUSE_MS = 4;
const DIAL_SLOW_PAUSE_MS = 25;
const DIAL_OBSERVE_MS = 1000;

/** The two containers of each session. One operation at a time per session: a start never races with a stop. */
export class Sandboxes {
  readonly #options: SandboxesOptions;
  readonly #last = new Map<string, Promise<unknown>>();
  /** The last known container of each session's agent. */
  readonly #agents = new Map<string, string>();

  constructor(options: SandboxesOptions) {
    this.#options = options;
  }

  start(spec: SandboxSpec, withAgent: boolean): Promise<void> {
    return this.#serialized(spec.sessionId, () => this.#start(spec, withAgent));
  }

  pause(sessionId: string): Promise<void> {
    const what = `Cannot pause ${sessionId}`;
    return this.#withAgent(sessionId, (id) => this.#options.containers.pause(what, id));
  }

  unpause(sessionId: string): Promise<void> {
    const what = `Cannot unpause ${sessionId}`;
    return this.#withAgent(sessionId, (id) => this.#options.containers.unpause(what, id));
  }

  async countAgentProcesses(sessionId: string): Promise<number> {
    const { id } = await this.livingAgent(sessionId);
    return await this.#options.containers.countProcesses(`Cannot list the processes of ${sessionId}`, id);
  }

  stopAgent(sessionId: string, graceMs: number): Promise<void> {
    return this.#serialized(sessionId, async () => {
      await this.#end(await this.#sides(sessionId), 'agent', sessionId, graceMs);
    });
  }

  remove(sessionId: string, graceMs: number): Promise<void> {
    return this.#serialized(sessionId, async () => {
      const sides = await this.#sides(sessionId);
      await this.#end(sides, 'agent', sessionId, graceMs);
      await this.#end(sides, 'setup', sessionId, 0);
      await this.#end(sides, 'sidecar', sessionId, 0);
      await (await this.#options.mountStrategy()).removeSandboxFiles(sessionId);
    });
  }

  /** Tries the last known agent container first: looking it up would cost as much as the operation. */
  #withAgent(sessionId: string, verb: (id: string) => Promise<void>): Promise<void> {
    return this.#serialized(sessionId, async () => {
      const known = this.#agents.get(sessionId);
      if (known !== undefined) {
        try {
          await verb(known);
          return;
        } catch (error) {
          if (!isRefusal(error)) throw error;
          this.#agents.delete(sessionId);
        }
      }
      const { id } = await this.#living(sessionId, 'agent');
      await verb(id);
      this.#agents.set(sessionId, id);
    });
  }

  /** The running or paused container of a role. Errors: `sandbox_lost`. */
  async #living(sessionId: string, role: 'sidecar' | 'agent'): Promise<SandboxContainer> {
    const side = (await this.#sides(sessionId)).find(
      (one) => one.role === role && (one.state === 'running' || one.state === 'paused'),
    );
    if (side !== undefined) return side;
    throw new HoldfastError('sandbox_lost', `The sandbox of ${sessionId} is not running`, {
      why: `it has no running ${role} container`,
      next: 'send another request: it gets a new sandbox',
      details: { session: sessionId, side: role },
    });
  }

  livingAgent(sessionId: string): Promise<SandboxContainer> {
    return this.#living(sessionId, 'agent');
  }

  /** Waits for a sidecar that is starting; fails at once when it exits. */
  async dial(sessionId: string): Promise<Duplex> {
    const placement = await this.#options.mountStrategy();
    const until = performance.now() + DIAL_MS;
    let mayHaveChanged = true;
    const unwatch = this.#options.watch((change) => {
      if (change.sessionId === sessionId || change.sessionId === null) mayHaveChanged = true;
    });
    try {
      let sidecar: SandboxContainer | null = null;
      let observedAt = 0;
      for (;;) {
        if (placement.localPaths || sidecar !== null) {
          const stream = await placement.dial(sidecar?.id ?? '', sessionId);
          if (stream !== null) return stream;
        }
        const now = performance.now();
        if (mayHaveChanged || now - observedAt > DIAL_OBSERVE_MS) {
          mayHaveChanged = false;
          observedAt = now;
          const before: SandboxContainer | null = sidecar;
          sidecar = await this.#living(sessionId, 'sidecar');
          if (before === null) continue;
        }
        if (now > until) throw notListening(sessionId);
        await sleep(now < until - DIAL_MS + 1000 ? DIAL_PAUSE_MS : DIAL_SLOW_PAUSE_MS);
      }
    } finally {
      unwatch();
    }
  }

  async #start(given: SandboxSpec, withAgent: boolean): Promise<void> {
    const { containers, naming } = this.#options;
    const spec = this.#withinCpuCount(given);
    const placement = await this.#options.mountStrategy();
    const [mounts, listed] = await Promise.all([
      placement.prepareMounts(spec, withAgent),
      containers.list(spec.sessionId),
    ]);
    const hashes = specHashes(given, this.#options.sidecarImage, this.#options.programsHash);
    const plan = planSandbox(listed.map(toSandboxContainer), {
      generation: spec.generation,
      sidecarHash: hashes.sidecar,
      agentHash: hashes.agent,
      wantsAgent: withAgent,
    });
    const what = `Cannot start the sandbox of ${spec.sessionId}`;
    await Promise.all(plan.remove.map((id) => containers.remove(what, id)));

    const made: string[] = [];
    const label = (role: 'sidecar' | 'agent', hash: string): Record<string, string> =>
      naming.labels(role, { session: spec.sessionId, generation: spec.generation, spec: hash });
    const create = async (role: 'sidecar' | 'agent', network: NetworkNamespace): Promise<string> => {
      const body =
        role === 'sidecar'
          ? sidecarOptions(
              spec,
              this.#options.sidecarImage,
              mounts.sidecar,
              network,
              label(role, hashes.sidecar),
              !withAgent,
            )
          : agentOptions(spec, mounts.agent, network, label(role, hashes.agent));
      const id = await containers.create(what, naming.container(spec.sessionId, role), body);
      made.push(id);
      return id;
    };
    try {
      if (plan.agent.do === 'unpause') await containers.unpause(what, plan.agent.id);
      let sidecar: string;
      const starting: Promise<unknown>[] = [];
      if (plan.sidecar.do === 'keep') sidecar = plan.sidecar.id;
      else {
        sidecar = await create(
          'sidecar',
          plan.namespaceOwner === null ? 'none' : { joins: plan.namespaceOwner },
        );
        starting.push(containers.start(what, sidecar));
      }
      if (plan.agent.do === 'create') {
        const agent = create('agent', { joins: sidecar });
        // Creating the agent overlaps with starting the sidecar; joining its namespace requires it to run.
        await allSettled([...starting, agent]);
        await failpoint('start.after-sidecar');
        await containers.start(what, await agent);
        await failpoint('start.after-agent');
      } else await allSettled(starting);
    } catch (error) {
      const leftovers = await Promise.allSettled(made.map((id) => containers.remove(what, id)));
      const failure = startFailure(error, what, spec, await this.#missingImage(error, spec), mounts);
      for (const result of leftovers) {
        if (result.status === 'rejected') failure.cause = new AggregateError([error, result.reason], what);
      }
      throw failure;
    }
  }

  /** The missing image that may have caused the error; null if both exist. */
  async #missingImage(error: unknown, spec: SandboxSpec): Promise<string | null> {
    if (!isRefusal(error, 404)) return null;
    const { containers, sidecarImage } = this.#options;
    for (const image of [sidecarImage, spec.image]) {
      // The caller must get the original error, not a failure of this check.
      if (!(await containers.hasImage(image).catch(() => true))) return image;
    }
    return null;
  }

  /** An engine refuses more CPUs than it has. */
  #withinCpuCount(spec: SandboxSpec): SandboxSpec {
    const processors = this.#options.cpuCount();
    if (processors === 0 || spec.limits.cpus <= processors) return spec;
    return { ...spec, limits: { ...spec.limits, cpus: processors } };
  }

  async #sides(sessionId: string): Promise<SandboxContainer[]> {
    return (await this.#options.containers.list(sessionId)).map(toSandboxContainer);
  }

  async #end(
    sides: readonly SandboxContainer[],
    role: string,
    sessionId: string,
    graceMs: number,
  ): Promise<void> {
    const what = `Cannot stop the sandbox of ${sessionId}`;
    if (role === 'agent') this.#agents.delete(sessionId);
    for (const side of sides.filter((one) => one.role === role)) {
      await this.#options.containers.stop(what, side.id, side.state, graceMs);
      await this.#options.containers.remove(what, side.id);
    }
  }

  #serialized<T>(sessionId: string, verb: () => Promise<T>): Promise<T> {
    const before = this.#last.get(sessionId) ?? Promise.resolve();
    const mine = before.then(verb, verb);
    const after = mine
      .catch(() => undefined)
      .then(() => {
        if (this.#last.get(sessionId) === after) this.#last.delete(sessionId);
      });
    this.#last.set(sessionId, after);
    return mine;
  }
}

/** Like Promise.all, but settles only when all have settled: cleanup must not race with a create. */
async function allSettled(promises: readonly Promise<unknown>[]): Promise<void> {
  const failed = (await Promise.allSettled(promises)).find((one) => one.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
}

function startFailure(
  error: unknown,
  what: string,
  spec: SandboxSpec,
  missing: string | null,
  mounts: SandboxMounts,
): HoldfastError {
  if (error instanceof HoldfastError) return error;
  if (!(error instanceof EngineRefusal)) return HoldfastError.from(error, what);
  if (missing !== null) return missingImageError(missing, error);
  return new HoldfastError('sandbox_failed', what, {
    why: error.reason,
    next: nextAfter(error.reason),
    details: {
      session: spec.sessionId,
      status: error.status,
      image: spec.image,
      mounts: mounts.agent.map(({ Source }) => Source),
    },
    cause: error,
  });
}

function nextAfter(reason: string): string {
  if (/runtime/i.test(reason) && /unknown|not found/i.test(reason)) {
    return 'choose a runtime that the engine has (`docker info`), or add it to /etc/docker/daemon.json';
  }
  if (/exec format error/i.test(reason)) return "use an image for this machine's architecture";
  if (/source path does not exist/i.test(reason)) return 'deploy the profile again';
  if (/no space left/i.test(reason)) return "free space on the engine's disk: `docker system df`";
  return 'see `holdfast doctor`';
}

function notListening(sessionId: string): HoldfastError {
  return new HoldfastError('sandbox_lost', `The sidecar of ${sessionId} does not answer`, {
    why: `it is running, but did not listen within ${DIAL_MS / 1000} s`,
    next: 'stop the session, then send another request: it gets a new sandbox',
    details: { session: sessionId },
  });
}
