import type { Profile } from '../../protocol/profile.ts';
import { failpoint } from '../base/failpoints.ts';
import { environmentOfSecrets } from '../base/secret-environment.ts';
import type { Egress } from '../egress/egress.ts';
import type { Policies } from '../egress/policies.ts';
import type { Engine, PreparedImage, PrepareIo } from '../engine/port.ts';
import type { SetupTemplate } from '../store/setups.ts';
import type { PackageSources } from './package-sources.ts';
import type { SetupPlan } from './plan.ts';
import { keptInHome } from '../../protocol/agent-home.ts';
import { removeFiles, SecretGate } from './secret-gate.ts';
import { scanEntries, scanFiles } from './secret-scan.ts';
import type { SetupSecret } from './secret-parts.ts';
import { CLONE_PASSWORD, gitMissingError, hasGit, isClone } from './clone.ts';
import { requireWithinLimits, runCommands, type SetupCommand, type SetupSeed } from './setup-commands.ts';
import type { SetupContainersOptions } from './setup-containers.ts';
import type { Execution, FinishedSetup, SetupExecutions, SetupExecutionsOptions } from './setup-execution.ts';
import { removeUselessImage, requireStarts } from './image-trial.ts';
import { sandboxOf } from './setup-sandbox.ts';
import type { TemplateCapture } from './template-capture.ts';

export interface SetupRunsOptions extends SetupExecutionsOptions, SetupContainersOptions {
  readonly engine: Engine;
  readonly policies: Pick<Policies, 'declare' | 'withdraw'>;
  readonly egress: Pick<Egress, 'setLive' | 'waitUntilReady'>;
  /** Whether the agent container of this sandbox takes requests. Waits for it, until `signal` is aborted. */
  readonly takesRequests: (sandboxId: string, signal: AbortSignal) => Promise<boolean>;
  readonly templates: TemplateCapture;
  /** Where packages come from. Errors: `invalid_state`. */
  readonly sources: () => PackageSources;
}

export interface SetupRequest {
  readonly profile: Profile;
  /** The image to start from; the engine has it. */
  readonly image: string;
  /** What the workspace of its commands begins with; null: nothing. */
  readonly seed: SetupSeed | null;
  /** For the beginning of the log, a line each. */
  readonly notes?: readonly string[] | undefined;
  /** Files in which a secret is found are removed. Default: they end the setup. */
  readonly removeSecretFiles?: boolean | undefined;
  /** Called with what the setup does. */
  readonly reportProgress: (stage: string) => void;
  /** Called with what its log keeps. */
  readonly onOutput?: (bytes: Buffer) => void;
  /** Records who uses the image, in the transaction in which the setup ends. */
  readonly recordUse?: (image: string) => void;
  readonly signal: AbortSignal;
}

/** One setup under way. */
interface Running extends Execution {
  readonly plan: SetupPlan;
  readonly secrets: readonly SetupSecret[];
  readonly seed: SetupSeed | null;
  readonly removeSecretFiles: boolean;
}

/**
 * Runs setups. Each has a sidecar of its own, for its network, and a container that is removed with it; it sees no workspace and no
 * code. Its image counts when a sandbox has started from it. Its commands run in that sandbox, in a workspace that is removed after
 * what they left has been stored.
 */
export class SetupRuns {
  readonly #options: SetupRunsOptions;
  readonly #executions: SetupExecutions;

  constructor(options: SetupRunsOptions, executions: SetupExecutions) {
    this.#options = options;
    this.#executions = executions;
  }

  /** Errors: `setup_failed` with the log's last lines, `cancelled`, `timeout`, and those of the engine. */
  async run(plan: SetupPlan, secrets: readonly SetupSecret[], request: SetupRequest): Promise<FinishedSetup> {
    const { image: baseImage, seed, notes = [], removeSecretFiles = false, ...rest } = request;
    const { key, commands } = plan;
    const asked = { ...rest, key, baseImage, secrets, hasCommands: commands.length > 0 };
    return await this.#executions.run(asked, async (execution) => {
      const running = { ...execution, plan, secrets, seed, removeSecretFiles };
      for (const note of notes) {
        running.output.append(Buffer.from(`== ${note}\n`));
        running.reportProgress(`setup: ${note}`);
      }
      await this.#openNetwork(running);
      const isCloned = await this.#cloneBefore(running);
      const image = await this.#prepare(running);
      return { image, template: await this.#tryImage(image, running, isCloned) };
    });
  }

  async #openNetwork({ plan, row, profile, reportProgress, signal }: Running): Promise<void> {
    const { engine, policies, egress } = this.#options;
    const sandbox = sandboxOf(row, profile);
    signal.throwIfAborted();
    reportProgress('setup');
    await engine.createWorkspace(sandbox.workspace);
    await engine.startSidecar(sandbox);
    signal.throwIfAborted();
    policies.declare(row.id, plan.rules);
    await egress.waitUntilReady(row.id);
  }

  /**
   * Clones in the image to begin with: what the setup's packages install could read the repository's secret. False if there is nothing to
   * clone or nothing to install, or if that image has no git and the repository no secret: then the clone is the first command
   * afterwards. Errors: `setup_failed` without git for a repository with a secret.
   */
  async #cloneBefore(running: Running): Promise<boolean> {
    const { engine } = this.#options;
    const { plan, row } = running;
    if (plan.steps.length === 0 || !plan.commands.some(isClone)) return false;
    await this.#requireUsable(row.baseImage, running);
    const clones = plan.commands.filter(isClone);
    if (await hasGit(engine, row.id, running.signal)) {
      await this.#runIn(running, clones, null);
      await failpoint('setup.after-clone');
      return true;
    }
    await engine.stopAgent(row.id, 0);
    if (clones.some(({ secret }) => secret !== undefined)) throw gitMissingError(row.baseImage);
    return false;
  }

  async #prepare(running: Running): Promise<PreparedImage> {
    const { engine } = this.#options;
    const { plan, row, profile, signal } = running;
    const given = givenSecrets(running);
    const gate = gateOf(running, 'its image');
    return await engine.prepare(
      { sandbox: sandboxOf(row, profile), image: row.baseImage, steps: plan.steps, secrets: given },
      {
        signal,
        ...this.#reporting(running),
        // Without a step of its own the image is the base, to which nothing was given.
        ...(given.length === 0 || plan.steps.length === 0
          ? {}
          : {
              inspect: (files) => gate.search((search) => scanFiles(files, search, signal)),
            }),
      },
    );
  }

  /** In the log each step has a line of its own. */
  #reporting(running: Running): Pick<PrepareIo, 'onStep' | 'onOutput'> {
    const { onStep, onOutput } = this.#executions.reporting(running, 'setup');
    return {
      onStep: (name) => {
        onStep(name);
        running.output.append(Buffer.from(`== ${name}\n`));
      },
      onOutput,
    };
  }

  /** Starts a sandbox from the image and runs the commands there. The image is removed if it is of no use. */
  async #tryImage(
    { reference }: PreparedImage,
    running: Running,
    isCloned: boolean,
  ): Promise<SetupTemplate | null> {
    const { templates, log } = this.#options;
    const { id } = running.row;
    try {
      await this.#requireUsable(reference, running);
      return running.plan.commands.length === 0
        ? null
        : await this.#runCommands(reference, running, isCloned);
    } catch (error) {
      await templates
        .remove(id)
        .catch((left: unknown) =>
          log.warn('what a setup stored stays; the next start removes it', { setup: id, error: left }),
        );
      await removeUselessImage(this.#options, id, reference);
      throw error;
    }
  }

  async #requireUsable(image: string, { plan, row, profile, signal }: Running): Promise<void> {
    const spec = { ...sandboxOf(row, profile), image, hasSecretsFolder: plan.commands.length > 0 };
    await requireStarts(
      this.#options,
      row.id,
      spec,
      (line) => this.#executions.addToLog(row.id, line),
      signal,
    );
  }

  async #runCommands(image: string, running: Running, isCloned: boolean): Promise<SetupTemplate> {
    const { plan, profile, seed, output, reportProgress } = running;
    const commands = isCloned ? plan.commands.filter((one) => !isClone(one)) : plan.commands;
    await this.#runIn(running, commands, isCloned ? null : seed);
    await failpoint('setup.after-run');
    output.flush();
    reportProgress('setup: storing what its commands left');
    const template = await this.#capture(image, running);
    requireWithinLimits(profile, template);
    await failpoint('setup.after-template');
    return template;
  }

  /** In the sandbox that was started; nothing runs in it afterwards. */
  async #runIn(running: Running, commands: readonly SetupCommand[], seed: SetupSeed | null): Promise<void> {
    const { engine, connect } = this.#options;
    const { row, profile, signal } = running;
    const sidecar = await connect(row.id);
    try {
      const given = commands.every(isClone) ? [] : givenSecrets(running);
      await runCommands(
        engine,
        sidecar,
        {
          ...{ sandboxId: row.id, profile, secrets: given, seed },
          commands: commands.map((one) => ({ ...one, env: environmentOf(one, running) })),
        },
        { ...this.#reporting(running), signal },
      );
    } finally {
      sidecar.close();
    }
  }

  /** Without files in which a secret is found, if these are to be removed. */
  async #capture(image: string, running: Running): Promise<SetupTemplate> {
    const { engine, templates } = this.#options;
    const { row, profile, signal } = running;
    const gate = gateOf(running, 'the files of new sessions');
    for (;;) {
      const unwanted: string[] = [];
      const template = await templates.capture(row.id, {
        kept: keptInHome(profile.agent),
        inspect: async (files) => {
          unwanted.push(...(await gate.search((search) => scanEntries(files, search))));
        },
        signal,
      });
      if (unwanted.length === 0) return template;
      await templates.remove(row.id);
      await this.#requireUsable(image, running);
      await removeFiles(engine, row.id, unwanted, signal);
      await engine.stopAgent(row.id, 0);
    }
  }
}

/** Without that of a repository, which only its clone gets. */
function givenSecrets({ secrets, profile }: Running): readonly SetupSecret[] {
  return secrets.filter(({ name }) => profile.setup?.secrets?.includes(name) === true);
}

function gateOf(
  { profile, secrets, removeSecretFiles, output, reportProgress }: Running,
  place: string,
): SecretGate {
  const what = { profile: profile.name, secrets, place, removes: removeSecretFiles };
  return new SecretGate({ ...what, output, reportProgress });
}

function environmentOf({ secret, env }: SetupCommand, running: Running): Record<string, string> {
  if (secret === undefined) return { ...environmentOfSecrets(givenSecrets(running)), ...env };
  const own = running.secrets.filter(({ name }) => name === secret);
  return { ...env, ...environmentOfSecrets(own.map(({ value }) => ({ name: CLONE_PASSWORD, value }))) };
}
