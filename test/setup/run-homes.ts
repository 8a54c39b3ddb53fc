import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Environment variable with the path of the file that lists the homes; the workers of the run inherit it. */
const VARIABLE = 'HOLDFAST_TEST_HOMES';

/** The homes of one run of the tests. Another run may use the same engine; its objects are not this run's concern. */
export class RunHomes {
  readonly #folder = mkdtempSync(join(tmpdir(), 'holdfast-run-'));
  readonly #file = join(this.#folder, 'homes');

  /** Made before the workers start, because they inherit the environment. */
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

/** Notes a home of this run: nothing with its label may be left on the engine when the run ends. */
export function registerHome(homeId: string): void {
  const file = process.env[VARIABLE];
  // A run without an engine cannot leave anything on it.
  if (file !== undefined) appendFileSync(file, `${homeId}\n`);
}
