import type { Profile } from '../../protocol/profile.ts';
import { SETUP_TIMEOUT_MS } from '../../protocol/setup.ts';
import { failpoint } from '../base/failpoints.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { Engine, PreparedImage, PrepareIo } from '../engine/port.ts';
import type { Home } from '../store/home.ts';
import type { SetupRow, SetupRows, SetupTemplate } from '../store/setups.ts';
import { failureOf } from './setup-failure.ts';
import type { SetupContainers } from './setup-containers.ts';
import { SetupLog } from './setup-log.ts';
import type { SetupSecret } from './secret-parts.ts';
import { SecretRedaction } from './secret-search.ts';

/** How often a line of output is reported to the client. */
const REPORT_MS = 250;

export interface SetupExecutionsOptions {
  readonly home: Home;
  readonly rows: SetupRows;
  readonly engine: Pick<Engine, 'capabilities'>;
  /** Who owns the files of the setup's sidecar. */
  readonly owner: () => { readonly uid: number; readonly gid: number };
  readonly ids: Ids;
  readonly log: Log;
  readonly now: () => number;
}

/** A setup or a build to execute. */
export interface ExecutionRequest {
  readonly key: string;
  readonly baseImage: string;
  readonly hasCommands: boolean;
  readonly profile: Profile;
  /** None of their values is kept in the log. */
  readonly secrets: readonly SetupSecret[];
  /** Called with what it does. */
  readonly reportProgress: (stage: string) => void;
  /** Called with what its log keeps. */
  readonly onOutput?: ((bytes: Buffer) => void) | undefined;
  /** Records who uses the image, in the transaction of its end. */
  readonly recordUse?: ((image: string) => void) | undefined;
  readonly signal: AbortSignal;
}

/** One setup or build under way. */
export interface Execution {
  readonly row: Parameters<SetupRows['begin']>[0];
  readonly profile: Profile;
  readonly output: SetupLog;
  readonly reportProgress: (stage: string) => void;
  /** Also when it takes too long. */
  readonly signal: AbortSignal;
}

export interface FinishedSetup {
  readonly id: string;
  readonly image: PreparedImage;
}

/**
 * What every setup and build has, whatever it does: a row, a log, a limit of time. Its containers are removed before its end is
 * recorded, so a row that says `running` names all that a killed supervisor leaves.
 */
export class SetupExecutions {
  readonly #options: SetupExecutionsOptions;
  readonly #containers: SetupContainers;
  /** Logs of those that run, by id. */
  readonly #running = new Map<string, SetupLog>();

  constructor(options: SetupExecutionsOptions, containers: SetupContainers) {
    this.#options = options;
    this.#containers = containers;
  }

  isRunning(id: string): boolean {
    return this.#running.has(id);
  }

  /** Does nothing for one that does not run. */
  addToLog(id: string, text: string): void {
    this.#running.get(id)?.append(Buffer.from(text));
  }

  /** Errors: those of `work`; `setup_failed` with the log's last lines, `cancelled`, `shutting_down`, `timeout`. */
  async run(
    request: ExecutionRequest,
    work: (execution: Execution) => Promise<{ image: PreparedImage; template: SetupTemplate | null }>,
  ): Promise<FinishedSetup> {
    const { key, baseImage, hasCommands, profile, secrets, reportProgress, onOutput, recordUse, signal } =
      request;
    const { rows, ids, owner, engine, home, log, now } = this.#options;
    const id = ids.next('setup');
    const { localPaths } = engine.capabilities();
    const row = {
      ...{ id, profile: profile.name, key, ...owner(), baseImage, hasCommands, startedAt: now() },
      backing: localPaths ? ('directory' as const) : ('volume' as const),
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
      const { image, template } = await work({ row, profile, output, reportProgress, signal: either });
      const { reference, imageId, bytes } = image;
      await this.#clear(row);
      rows.finish(id, now(), { image: reference, imageId, bytes, template }, () => recordUse?.(reference));
      await failpoint('setup.after-end');
      log.info('prepared an image', { profile: profile.name, setup: id, bytes });
      return { id, image };
    } catch (error) {
      output.flush();
      const said = output.lastLines;
      const failure = failureOf(error, { profile: profile.name, said, signal, late, limit });
      // A row that stays `running` makes the next recovery remove what is left.
      if (await this.#clear(row)) rows.fail(id, now(), failure);
      throw failure;
    } finally {
      this.#running.delete(id);
      output.close();
    }
  }

  /** Puts steps and output into the log, and tells the client. `kind`: the first word of what the client is told. */
  reporting(
    { row, output, reportProgress }: Execution,
    kind: 'setup' | 'build',
  ): Pick<PrepareIo, 'onStep' | 'onOutput'> {
    let step = '';
    let reportedAt = 0;
    return {
      onStep: (name) => {
        step = name;
        this.#options.rows.recordStep(row.id, name);
        output.flush();
        reportProgress(`${kind}: ${name}`);
      },
      onOutput: (chunk, stream) => {
        output.appendOutput(chunk, stream);
        const at = performance.now();
        if (at - reportedAt < REPORT_MS) return;
        reportedAt = at;
        reportProgress(`${kind}: ${step}: ${output.lastLine}`);
      },
    };
  }

  /** What its commands wrote may hold a secret. Whether nothing is left. */
  async #clear(row: SetupRow | Execution['row']): Promise<boolean> {
    await failpoint('setup.before-clear');
    try {
      await this.#containers.remove(row);
      return true;
    } catch (error) {
      this.#options.log.warn('cannot remove what a setup left; the next start tries again', {
        setup: row.id,
        error,
      });
      return false;
    }
  }
}
