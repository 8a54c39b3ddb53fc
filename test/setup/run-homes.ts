import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Names the file that lists them, for the workers of the run. */
const VARIABLE = 'HOLDFAST_TEST_HOMES';

/** The homes of one run of the tests: another run may work on the same engine, and what it has there is not ours to judge. */
export class RunHomes {
  readonly #folder = mkdtempSync(join(tmpdir(), 'holdfast-run-'));
  readonly #file = join(this.#folder, 'homes');

  /** Before the workers start: they inherit where to write. */
  constructor() {
    writeFileSync(this.#file, '');
    process.env[VARIABLE] = this.#file;
  }

  ids(): ReadonlySet<string> {
    return new Set(readFileSync(this.#file, 'utf8').split('\n'));
  }

  dispose(): void {
    rmSync(this.#folder, { recursive: true });
    Reflect.deleteProperty(process.env, VARIABLE);
  }
}

/** What carries this home's label must be gone from the engine when the run ends. */
export function registerHome(homeId: string): void {
  const file = process.env[VARIABLE];
  // Without an engine there is nothing to leave on it.
  if (file !== undefined) appendFileSync(file, `${homeId}\n`);
}
