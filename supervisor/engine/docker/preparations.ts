import type { ContainerCreateOptions } from 'dockerode';
import type { z } from 'zod';
import { HoldfastError } from '../../../protocol/errors.ts';
import { SETUP_DISK_BYTES } from '../../../protocol/setup.ts';
import { IN_SANDBOX } from '../../../sidecar/wire.ts';
import { failpoint } from '../../base/failpoints.ts';
import { environmentOfSecrets } from '../../base/secret-environment.ts';
import type { PreparedImage, PrepareIo, PrepareSpec } from '../port.ts';
import { runBriefly } from '../brief-program.ts';
import { type StartProgram, runSetupProgram, writeSecretFile } from '../setup-programs.ts';
import type { DockerApi } from './api.ts';
import { setupOptions } from './container-options.ts';
import type { Containers, EngineTimeouts } from './containers.ts';
import type { Execs } from './exec.ts';
import { LABEL, type Naming } from './labels.ts';
import type { MountStrategy, SandboxMounts } from './mount-strategy.ts';
import { CreatedReply, ImageReply, parseReply } from './replies.ts';
import { diskLimitError, watchDisk } from './setup-disk.ts';

/** A layer of several gigabytes takes minutes on a slow disk. */
const COMMIT_MS = 15 * 60_000;
/** Of a folder with a million files. */
const REMOVAL_MS = 10 * 60_000;
const END_SECONDS = 1;
/** A quick disk takes a few gigabytes meanwhile. */
const MEASURE_MS = 3000;

const BUSYBOX = `${IN_SANDBOX.runtime}/busybox`;

/** What a setup sees of a sandbox: our programs and the files of its network. User names are the image's, which packages change. */
const MOUNTED: readonly string[] = [IN_SANDBOX.runtime, '/etc/hosts', '/etc/hostname', '/etc/resolv.conf'];

export interface PreparationsOptions {
  readonly api: () => Promise<DockerApi>;
  readonly containers: Containers;
  readonly execs: Execs;
  readonly naming: Naming;
  readonly timeouts: EngineTimeouts;
  mountStrategy(): Promise<MountStrategy>;
  /** Where the engine keeps its data, as this machine sees it; null: elsewhere. */
  dataFolder(): string | null;
}

/** Makes prepared images: runs the steps of a setup in a container of their own, and commits what they leave. */
export class Preparations {
  readonly #options: PreparationsOptions;

  constructor(options: PreparationsOptions) {
    this.#options = options;
  }

  async prepare(spec: PrepareSpec, io: PrepareIo): Promise<PreparedImage> {
    const { containers, execs } = this.#options;
    const what = `Cannot prepare an image for ${spec.sandbox.code.profile}`;
    const id = await this.#create(what, spec);
    const ended = new AbortController();
    const tooLarge = new AbortController();
    const signal = AbortSignal.any([io.signal, tooLarge.signal]);
    // Without its container every step ends at once.
    const cancel = (): void => void containers.remove(what, id).catch(() => undefined);
    signal.addEventListener('abort', cancel, { once: true });
    try {
      signal.throwIfAborted();
      await containers.start(what, id);
      const measure = (): Promise<number> => containers.measure(what, id);
      void watchDisk({
        ...{ folder: this.#options.dataFolder(), written: measure },
        ...{ limitBytes: SETUP_DISK_BYTES, everyMs: MEASURE_MS },
        signal: AbortSignal.any([signal, ended.signal]),
      }).then((error) => {
        if (error !== null) tooLarge.abort(error);
      });
      const start: StartProgram = (program) => execs.run(what, id, program);
      const place = { start, end: () => containers.remove(what, id) };
      for (const secret of spec.secrets) await writeSecretFile(place, secret, signal);
      const secrets = environmentOfSecrets(spec.secrets);
      for (const step of spec.steps) {
        const env = { ...secrets, ...step.env };
        await runSetupProgram(start, { ...step, execId: step.name, env, cwd: '/' }, { ...io, signal });
      }
      signal.throwIfAborted();
      await containers.end(what, id, END_SECONDS);
      ended.abort();
      if ((await measure()) > SETUP_DISK_BYTES) throw diskLimitError(SETUP_DISK_BYTES);
      while (io.inspect !== undefined) {
        const unwanted = await this.#inspect(what, id, io.inspect, signal);
        if (unwanted.length === 0) break;
        await this.#removeFiles(what, id, unwanted, signal);
      }
      await failpoint('setup.before-image');
      const image = await this.#commit(what, id, spec);
      await failpoint('setup.after-image');
      if (signal.aborted) await containers.removeImage(image.reference);
      signal.throwIfAborted();
      return image;
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    } finally {
      ended.abort();
      signal.removeEventListener('abort', cancel);
      await containers.remove(what, id);
    }
  }

  async #create(what: string, { sandbox, image }: PrepareSpec): Promise<string> {
    const { containers, naming } = this.#options;
    const strategy = await this.#options.mountStrategy();
    const mounts: SandboxMounts = await strategy.prepareMounts(sandbox, false);
    const sidecar = (await containers.list(sandbox.sessionId)).find(
      ({ Labels, State }) => Labels?.[LABEL.role] === 'sidecar' && State === 'running',
    );
    if (sidecar === undefined)
      throw new HoldfastError('sandbox_lost', what, { why: 'the sidecar of the setup does not run' });
    const body: ContainerCreateOptions = setupOptions(
      { ...sandbox, image },
      mounts.agent.filter(({ Target }) => MOUNTED.includes(Target)),
      { joins: sidecar.Id },
      naming.labels('setup', { session: sandbox.sessionId, generation: sandbox.generation }),
    );
    return await containers.create(what, naming.container(sandbox.sessionId, 'setup'), body);
  }

  async #inspect(
    what: string,
    id: string,
    inspect: NonNullable<PrepareIo['inspect']>,
    signal: AbortSignal,
  ): Promise<readonly string[]> {
    const api = await this.#options.api();
    const path = `/containers/${id}/export`;
    const files = await api.stream({
      ...{ what, method: 'GET', path, signal },
      timeoutMs: this.#options.timeouts.operationMs,
    });
    try {
      return await inspect(files);
    } finally {
      files.destroy();
    }
  }

  /** The container runs our own program meanwhile, and nothing of the setup. What cannot be removed is found again. */
  async #removeFiles(what: string, id: string, paths: readonly string[], signal: AbortSignal): Promise<void> {
    const { containers, execs } = this.#options;
    await containers.start(what, id);
    const start: StartProgram = (program) => execs.run(what, id, program);
    const removal = {
      execId: 'removal',
      command: [BUSYBOX, 'sh', '-c', '"$0" xargs -0 "$0" rm -rf --', BUSYBOX],
      input: paths.map((path) => `${path}\0`).join(''),
    };
    await runBriefly({ start, end: () => containers.remove(what, id) }, removal, signal, REMOVAL_MS);
    await containers.end(what, id, END_SECONDS);
  }

  /**
   * The image has a name from the beginning: were we killed now, its labels would say whose it is. It is waited for whatever happens,
   * because an engine goes on with what nobody waits for, and the image would appear later.
   */
  async #commit(what: string, container: string, { sandbox, image }: PrepareSpec): Promise<PreparedImage> {
    const { naming, timeouts } = this.#options;
    const api = await this.#options.api();
    const { repository, tag } = naming.preparedImage(sandbox.sessionId);
    const answer = await api.json({
      what,
      method: 'POST',
      path: '/commit',
      query: { container, repo: repository, tag, pause: false },
      body: {
        User: '',
        WorkingDir: '/',
        Entrypoint: [],
        Cmd: ['sh'],
        Labels: naming.labels('prepared', { session: sandbox.sessionId }),
      },
      timeoutMs: COMMIT_MS,
    });
    const { Id } = parseReply(CreatedReply, what, answer);
    const inspect = async (reference: string): Promise<z.infer<typeof ImageReply>> => {
      const path = `/images/${reference}/json`;
      const reply = await api.json({ what, method: 'GET', path, timeoutMs: timeouts.queryMs });
      return parseReply(ImageReply, what, reply);
    };
    const [made, before] = [await inspect(Id), await inspect(image)];
    const bytes = Math.max(0, (made.Size ?? 0) - (before.Size ?? 0));
    return { reference: `${repository}:${tag}`, imageId: made.Id, bytes };
  }
}
