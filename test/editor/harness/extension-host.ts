import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { z } from 'zod';
import { runInBrowser } from './browser-run.ts';
import type { Addresses, OpenTarget } from './code-server.ts';
import { runInDesktop } from './desktop-run.ts';

/** One line for each test that ran in the extension host. */
const OutcomeSchema = z.object({
  title: z.string(),
  state: z.enum(['passed', 'failed', 'skipped']),
  ms: z.number(),
  error: z.string().optional(),
});
export type Outcome = z.infer<typeof OutcomeSchema>;

export interface SuiteRun {
  readonly outcomes: readonly Outcome[];
}

export interface SuiteOptions {
  readonly open: (addresses: Addresses) => OpenTarget | Promise<OpenTarget>;
  readonly env: Readonly<Record<string, string>>;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly name: string;
  readonly timeoutMs?: number;
  /** Trusts the local folder once the suite opens VS Code's page for that. In a browser only: the suite is told by HOLDFAST_TEST_TRUST. */
  readonly trust?: boolean;
}

/** How a VS Code came to its end. */
export interface HostExit {
  /** Undefined: it did not end in time. */
  readonly code: number | undefined;
  /** What it said last. */
  readonly output: string;
}

/**
 * Opens what is to be opened in a real VS Code, with the extension from this checkout, and runs the suites inside its extension host
 * (test/editor/suite). Throws when they did not come to their end. VS Code is the one for the desktop that HOLDFAST_TEST_VSCODE names
 * (`npm run test:electron`), else code-server in a browser.
 */
export async function runInExtensionHost(
  options: SuiteOptions & {
    /** Which suite files to run. */
    readonly suites: readonly string[];
  },
): Promise<SuiteRun> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-suite-'));
  try {
    const results = join(folder, 'results.jsonl');
    const env = {
      ...options.env,
      HOLDFAST_SUITES: options.suites.join(','),
      HOLDFAST_SUITE_RESULTS: results,
    };
    const desktop = process.env['HOLDFAST_TEST_VSCODE'];
    const { code, output } =
      desktop === undefined
        ? await runInBrowser({ ...options, env })
        : await runInDesktop(desktop, { ...options, env });
    const lines = (await readFile(results, 'utf8').catch(() => '')).split('\n').filter((line) => line !== '');
    const outcomes = lines.map((line) => OutcomeSchema.parse(JSON.parse(line)));
    const failed = outcomes.some(({ state }) => state === 'failed');
    if (code === undefined || (code !== 0 && !failed) || outcomes.length === 0) {
      const how = code === undefined ? 'did not end in time' : `ended with ${String(code)}`;
      const ran = outcomes.map(({ title, state }) => `${state} ${title}`).join('\n');
      throw new Error(`the suites ${how}; so far:\n${ran}\n${output}`);
    }
    return { outcomes };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** For an assertion: nothing when all went well, else what did not and why. */
export function failures(outcomes: readonly Outcome[]): string {
  return outcomes
    .filter(({ state }) => state === 'failed')
    .map(({ title, error }) => `✗ ${title}\n${error ?? ''}`)
    .join('\n\n');
}
