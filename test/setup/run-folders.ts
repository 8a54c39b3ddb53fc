import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Environment variable with the path of the file that lists the folders; the workers of the run inherit it. */
const VARIABLE = 'HOLDFAST_TEST_FOLDERS';

/** The temporary folders of one run of the tests that no test may leave behind. */
export class RunFolders {
  readonly #folder = mkdtempSync(join(tmpdir(), 'holdfast-run-'));
  readonly #file = join(this.#folder, 'folders');

  /** Made before the workers start, because they inherit the environment. */
  constructor() {
    writeFileSync(this.#file, '');
    process.env[VARIABLE] = this.#file;
  }

  /** Errors: names the folders that are still there. */
  dispose(): void {
    const left = readFileSync(this.#file, 'utf8').split('\n').filter(existsSync);
    rmSync(this.#folder, { recursive: true });
    Reflect.deleteProperty(process.env, VARIABLE);
    if (left.length > 0) throw new Error(`tests left folders behind:\n  ${left.join('\n  ')}`);
  }
}

/** Makes a folder that has to be gone when the run ends. */
export function makeRunFolder(prefix: string): string {
  const folder = mkdtempSync(join(tmpdir(), prefix));
  const file = process.env[VARIABLE];
  if (file !== undefined) appendFileSync(file, `${folder}\n`);
  return folder;
}
