import { IN_SANDBOX } from '../../sidecar/wire.ts';
import type { Engine } from '../engine/port.ts';
import { runInAgent } from './agent-programs.ts';
import { leftSecretsError, type SecretFinding } from './secret-scan.ts';
import type { SetupSecret } from './secret-parts.ts';
import { SecretSearch } from './secret-search.ts';
import type { SetupLog } from './setup-log.ts';

/** Each finds some files at most. */
const MOST_SEARCHES = 10;
const BUSYBOX = `${IN_SANDBOX.runtime}/busybox`;

export interface SecretGateOptions {
  readonly profile: string;
  readonly secrets: readonly SetupSecret[];
  /** What is searched, for people. */
  readonly place: string;
  /** Files with secrets are to be removed. False: they end the setup. */
  readonly removes: boolean;
  readonly output: SetupLog;
  readonly reportProgress: (stage: string) => void;
}

/** Lets nothing of a setup be kept in which one of its secrets is found. */
export class SecretGate {
  readonly #options: SecretGateOptions;
  #searches = 0;

  constructor(options: SecretGateOptions) {
    this.#options = options;
  }

  /**
   * What the caller removes before it calls again; nothing: no secret is there. Errors: `setup_failed` with the paths, at once or after
   * some searches.
   */
  async search(scan: (search: SecretSearch) => Promise<SecretFinding[]>): Promise<string[]> {
    const { profile, secrets, place, removes, output, reportProgress } = this.#options;
    if (secrets.length === 0) return [];
    output.flush();
    reportProgress(`setup: searching ${place} for secrets`);
    this.#searches += 1;
    const found = await scan(new SecretSearch(secrets));
    const where = place.replace(/^its/, 'the');
    output.append(Buffer.from(`== ${found.length === 0 ? 'no secret is' : 'secrets are'} in ${where}\n`));
    if (found.length === 0) return [];
    if (!removes || this.#searches === MOST_SEARCHES) throw leftSecretsError(profile, found, place, removes);
    for (const { secret, path } of found) output.append(Buffer.from(`== removing ${path} (${secret})\n`));
    return [...new Set(found.map(({ file }) => file))];
  }
}

/** Removes files of a sandbox in which nothing runs, as its user. Errors: those of `runBriefly`. */
export async function removeFiles(
  engine: Pick<Engine, 'exec' | 'stopAgent'>,
  sandboxId: string,
  paths: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const removal = {
    execId: 'setup-removal',
    command: [BUSYBOX, 'sh', '-c', '"$0" xargs -0 "$0" rm -rf --', BUSYBOX],
    input: paths.map((path) => `${path}\0`).join(''),
  };
  // What it could not remove is found again.
  await runInAgent(engine, sandboxId, removal, signal);
}
