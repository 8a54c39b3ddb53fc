import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import type { DockerfileUse } from '../../../protocol/dockerfile.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { SETUP_DISK_BYTES } from '../../../protocol/setup.ts';
import { proxyEnvironment } from '../../egress/environment.ts';
import type { SetupRule } from '../../egress/policies.ts';
import { BUILD_DOCKERFILE } from '../../engine/port.ts';
import type { PreparedImage } from '../../engine/port.ts';
import { removeUselessImage, requireStarts } from '../image-trial.ts';
import { setupRules } from '../package-sources.ts';
import type { SetupSecret } from '../secret-parts.ts';
import { sandboxOf } from '../setup-sandbox.ts';
import type { Execution, FinishedSetup, SetupExecutions } from '../setup-execution.ts';
import type { SetupRequest, SetupRunsOptions } from '../setup-runs.ts';
import { resolveImages } from './base-images.ts';
import { type BuildContext, readContext, wantedPaths } from './context.ts';
import { type Dockerfile, parseDockerfile } from './parse.ts';
import { renderDockerfile } from './render.ts';

/** Changes when an equal Dockerfile would be built in another way. */
const FORMAT = 1;
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

/**
 * Builds the image of a profile from its Dockerfile. Its steps have the network of a setup, and see nothing but the context. A build is
 * a setup in all other ways: its row, its log, its key and its image.
 */
export class DockerfileBuilds {
  readonly #options: SetupRunsOptions;
  readonly #executions: SetupExecutions;

  constructor(options: SetupRunsOptions, executions: SetupExecutions) {
    this.#options = options;
    this.#executions = executions;
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
    request: Omit<SetupRequest, 'image' | 'seed'>,
  ): Promise<FinishedSetup> {
    const { profile, reportProgress, onOutput, recordUse, signal } = request;
    const { key, baseImage } = plan;
    const asked = { profile, reportProgress, onOutput, recordUse, signal };
    return await this.#executions.run(
      { ...asked, key, baseImage, secrets, hasCommands: false },
      async (execution) => {
        for (const one of plan.dockerfile.ignored)
          execution.output.append(Buffer.from(`[left out] ${one} has no effect in a sandbox\n`));
        const image = await this.#build(plan, execution);
        await this.#requireUsable(image, execution);
        return { image, template: null };
      },
    );
  }

  async #build(plan: BuildPlan, execution: Execution): Promise<PreparedImage> {
    const { engine, policies, egress } = this.#options;
    const { row, profile, reportProgress, signal } = execution;
    const sandbox = sandboxOf(row, profile);
    const { onStep, onOutput } = this.#executions.reporting(execution, 'build');
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
      { signal, onStep: (number) => onStep(`dockerfile ${number}`), onOutput },
    );
  }

  /** The image is removed if it is of no use. */
  async #requireUsable({ reference }: PreparedImage, { row, profile, signal }: Execution): Promise<void> {
    const { id } = row;
    const spec = { ...sandboxOf(row, profile), image: reference };
    try {
      await requireStarts(this.#options, id, spec, (line) => this.#executions.addToLog(id, line), signal);
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
