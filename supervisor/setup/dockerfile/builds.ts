import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import type { DockerfileUse } from '../../../protocol/dockerfile.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { Profile } from '../../../protocol/profile.ts';
import { SETUP_DISK_BYTES, SETUP_TIMEOUT_MS } from '../../../protocol/setup.ts';
import { failpoint } from '../../base/failpoints.ts';
import { proxyEnvironment } from '../../egress/environment.ts';
import type { SetupRule } from '../../egress/policies.ts';
import { BUILD_DOCKERFILE } from '../../engine/port.ts';
import type { PreparedImage } from '../../engine/port.ts';
import { removeUselessImage, requireStarts } from '../image-trial.ts';
import { setupRules } from '../package-sources.ts';
import type { SetupSecret } from '../secret-parts.ts';
import { SecretRedaction } from '../secret-search.ts';
import { SetupLog } from '../setup-log.ts';
import { failureOf } from '../setup-failure.ts';
import type { FinishedSetup, SetupRequest, SetupRunsOptions } from '../setup-runs.ts';
import { sandboxOf, workspaceOf } from '../setup-sandbox.ts';
import { resolveImages } from './base-images.ts';
import { type BuildContext, readContext, wantedPaths } from './context.ts';
import { type Dockerfile, parseDockerfile } from './parse.ts';
import { renderDockerfile } from './render.ts';

/** Changes when an equal Dockerfile would be built in another way. */
const FORMAT = 1;
const REPORT_MS = 250;
/** Larger ones are refused when they are read. */
const LARGEST_DOCKERFILE = 1024 * 1024;
/** Arguments that every Dockerfile has without declaring them, and that do not become part of the image. */
const PROXY_ARGS = /^(?:https?|no)_proxy$/i;

/** A Dockerfile to build, and the folder of the deployed project. */
export interface BuildSource {
  readonly use: DockerfileUse;
  readonly folder: string;
}

/** All that decides what a build makes. */
export interface BuildPlan {
  readonly key: string;
  readonly dockerfile: Dockerfile;
  readonly context: BuildContext;
  readonly rules: readonly SetupRule[];
  readonly args: Readonly<Record<string, string>>;
  readonly imageIds: ReadonlyMap<string, string>;
  /** Of the largest image that it begins with. */
  readonly baseBytes: number;
  /** For people: what the last stage begins with. */
  readonly baseImage: string;
}

type Row = Parameters<SetupRunsOptions['rows']['begin']>[0];

/**
 * Builds the image of a profile from its Dockerfile. Its steps have the network of a setup, and see nothing but the context. A build is
 * a setup in all other ways: its row, its log, its key and its image.
 */
export class DockerfileBuilds {
  readonly #options: SetupRunsOptions;
  /** Their logs, by id. */
  readonly #running = new Map<string, SetupLog>();

  constructor(options: SetupRunsOptions) {
    this.#options = options;
  }

  isRunning(id: string): boolean {
    return this.#running.has(id);
  }

  /** Does nothing for a build that does not run. */
  addToLog(id: string, text: string): void {
    this.#running.get(id)?.append(Buffer.from(text));
  }

  /** Pulls images that are missing. Errors: `profile_invalid`, `not_supported`, those of the engine. */
  async plan(
    { use, folder }: BuildSource,
    { profile, reportProgress, signal }: Pick<SetupRequest, 'profile' | 'reportProgress' | 'signal'>,
  ): Promise<BuildPlan> {
    const { engine, sources } = this.#options;
    if (!engine.capabilities().builds) {
      throw new HoldfastError('not_supported', `The Dockerfile of ${profile.name} cannot be built`, {
        why: 'the engine does not have the classic builder of Docker',
        next: 'build the image yourself and name it in `image`',
      });
    }
    const dockerfile = parseDockerfile(await readFile(folder, use.path), use);
    const listed = [...use.from, ...(profile.image === undefined ? [] : [profile.image])];
    const images = await resolveImages(engine.images, dockerfile, listed, {
      report: reportProgress,
      signal,
    });
    const context = await readContext(join(folder, use.context), wantedPaths(dockerfile), signal);
    const rules = setupRules(profile.setup?.egress ?? [], sources());
    const imageIds = new Map([...images].map(([reference, { id }]) => [reference, id]));
    const text = renderDockerfile(dockerfile, {
      imageId: (reference) => imageIds.get(reference) ?? '',
      buildLabels: {},
      imageLabels: {},
    });
    const inputs = {
      format: FORMAT,
      profile: profile.name,
      text,
      context: context.hash,
      rules,
      args: use.args,
    };
    return {
      ...{ dockerfile, context, rules, imageIds, args: use.args },
      key: createHash('sha256').update(JSON.stringify(inputs)).digest('hex'),
      baseBytes: Math.max(0, ...[...images.values()].map(({ bytes }) => bytes)),
      baseImage: baseOf(dockerfile),
    };
  }

  /** Errors: `setup_failed` with the log's last lines, `cancelled`, `timeout`, and those of the engine. */
  async run(
    plan: BuildPlan,
    secrets: readonly SetupSecret[],
    { profile, reportProgress, onOutput, recordUse, signal }: Omit<SetupRequest, 'image' | 'seed'>,
  ): Promise<FinishedSetup> {
    const { rows, ids, owner, engine, home, log, now } = this.#options;
    const id = ids.next('setup');
    const { localPaths } = engine.capabilities();
    const row: Row = {
      ...{ id, profile: profile.name, key: plan.key, ...owner(), startedAt: now() },
      baseImage: plan.baseImage,
      hasCommands: false,
      backing: localPaths ? 'directory' : 'volume',
    };
    const limit = profile.setup?.timeout ?? SETUP_TIMEOUT_MS;
    const late = AbortSignal.timeout(limit);
    const output = SetupLog.create(home.setupLog(id), {
      ...(onOutput === undefined ? {} : { onKept: onOutput }),
      redaction: secrets.length === 0 ? null : new SecretRedaction(secrets),
    });
    this.#running.set(id, output);
    try {
      rows.begin(row);
      await failpoint('setup.after-intent');
      const either = AbortSignal.any([signal, late]);
      for (const one of plan.dockerfile.ignored)
        output.append(Buffer.from(`[left out] ${one} has no effect in a sandbox\n`));
      const made = await this.#build(plan, row, profile, output, reportProgress, either);
      await this.#requireUsable(made, row, profile, either);
      const prepared = { image: made.reference, imageId: made.imageId, bytes: made.bytes, template: null };
      rows.finish(id, now(), prepared, () => recordUse?.(made.reference));
      log.info('built an image', { profile: profile.name, setup: id, bytes: made.bytes });
      return { id, image: made };
    } catch (error) {
      output.flush();
      const failure = failureOf(error, {
        profile: profile.name,
        said: output.lastLines,
        signal,
        late,
        limit,
      });
      rows.fail(id, now(), failure);
      throw failure;
    } finally {
      await this.removeContainers(row).catch((error: unknown) =>
        log.warn('cannot remove the containers of a build; gc removes them', { setup: id, error }),
      );
      this.#running.delete(id);
      output.close();
    }
  }

  async removeContainers(row: Row): Promise<void> {
    const { engine, policies, egress } = this.#options;
    egress.setLive(row.id, false);
    policies.withdraw(row.id);
    await engine.removeSandbox(row.id, 0);
    // Nothing is ever written there.
    await engine.deleteWorkspace(workspaceOf(row));
  }

  async #build(
    plan: BuildPlan,
    row: Row,
    profile: Profile,
    output: SetupLog,
    reportProgress: (stage: string) => void,
    signal: AbortSignal,
  ): Promise<PreparedImage> {
    const { engine, policies, egress, rows } = this.#options;
    const sandbox = sandboxOf(row, profile);
    let step = '';
    let reportedAt = 0;
    signal.throwIfAborted();
    reportProgress('build');
    await engine.createWorkspace(sandbox.workspace);
    await engine.startSidecar(sandbox);
    signal.throwIfAborted();
    policies.declare(row.id, plan.rules);
    await egress.waitUntilReady(row.id);
    const { build: buildLabels, image: imageLabels } = engine.buildLabels(row.id);
    const imageId = (reference: string): string => plan.imageIds.get(reference) ?? '';
    const text = renderDockerfile(plan.dockerfile, { imageId, buildLabels, imageLabels });
    return await engine.build(
      {
        sandbox,
        context: () => plan.context.tar({ name: BUILD_DOCKERFILE, text }),
        steps: text.trimEnd().split('\n'),
        args: { ...plan.args, ...proxyArgs() },
        baseBytes: plan.baseBytes,
        diskBytes: SETUP_DISK_BYTES,
      },
      {
        signal,
        onStep: (number) => {
          step = `dockerfile ${number}`;
          rows.recordStep(row.id, step);
          output.flush();
          reportProgress(`build: ${step}`);
        },
        onOutput: (chunk, stream) => {
          output.appendOutput(chunk, stream);
          const at = performance.now();
          if (at - reportedAt < REPORT_MS) return;
          reportedAt = at;
          reportProgress(`build: ${step}: ${output.lastLine}`);
        },
      },
    );
  }

  /** The image is removed if it is of no use. */
  async #requireUsable(
    { reference }: PreparedImage,
    row: Row,
    profile: Profile,
    signal: AbortSignal,
  ): Promise<void> {
    const { id } = row;
    const spec = { ...sandboxOf(row, profile), image: reference };
    try {
      await requireStarts(this.#options, id, spec, (line) => this.addToLog(id, line), signal);
    } catch (error) {
      await removeUselessImage(this.#options, id, reference);
      throw error;
    }
  }
}

function proxyArgs(): Record<string, string> {
  return Object.fromEntries(Object.entries(proxyEnvironment()).filter(([name]) => PROXY_ARGS.test(name)));
}

function baseOf({ stages }: Dockerfile): string {
  let base = stages.at(-1)?.base;
  while (base?.kind === 'stage') base = stages[base.index]?.base;
  return base?.kind === 'image' ? base.reference : 'scratch';
}

/** A file of a deployed project, whose links stay inside. Errors: `profile_invalid`. */
async function readFile(folder: string, path: string): Promise<Buffer> {
  const handle = await open(join(folder, path), constants.O_RDONLY | constants.O_NONBLOCK).catch(
    (error: unknown) => {
      throw missingError(path, 'the project has no such file, or an ignore file excludes it', error);
    },
  );
  try {
    const status = await handle.stat();
    if (!status.isFile() || status.size > LARGEST_DOCKERFILE)
      throw missingError(path, 'it is not a file, or too large');
    return await handle.readFile();
  } finally {
    await handle.close();
  }
}

function missingError(path: string, why: string, cause?: unknown): HoldfastError {
  return new HoldfastError('profile_invalid', `The Dockerfile ${path} cannot be read`, {
    why,
    next: 'correct `dockerfile` in holdfast.yaml, or create the file',
    details: { path },
    cause,
  });
}
