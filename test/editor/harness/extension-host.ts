import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { Workbench } from './browser.ts';
import { CodeServer } from './code-server.ts';
import type { Opening } from './code-server.ts';
import { editorPlaces } from './places.ts';
import { figure } from '../../setup/run-length.ts';

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
  /** Hosts that VS Code or the extension asked for and did not reach. */
  readonly blocked: ReadonlySet<string>;
}

/**
 * Opens what is to be opened in a real VS Code, with the extension from this checkout, and runs the suites inside its extension host
 * (test/editor/suite). Throws when they did not come to their end.
 */
export async function runInExtensionHost(options: {
  readonly open: (server: CodeServer) => Opening | Promise<Opening>;
  /** Which suite files to run: their names begin with one of these. */
  readonly suites: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly name: string;
  readonly timeoutMs?: number;
}): Promise<SuiteRun> {
  const { codeServer, chromium, root, suite, shots } = editorPlaces();
  const server = await CodeServer.start({
    codeServer,
    developer: true,
    settings: options.settings ?? {},
    env: { ...options.env, HOLDFAST_SUITES: options.suites.join(',') },
  });
  try {
    const results = join(server.folder, 'results.jsonl');
    const workbench = await Workbench.open({ chromium, server, shots });
    try {
      const { page, blocked } = workbench;
      const ended = new Promise<number>((resolve, reject) => {
        page.exposeFunction('codeAutomationExit', (code: number) => resolve(code)).catch(reject);
        page.exposeFunction('codeAutomationLog', () => undefined).catch(reject);
      });
      const opening = await options.open(server);
      await page.goto(
        server.url({
          ...opening,
          payload: [
            ['extensionDevelopmentPath', server.remote(root)],
            ['extensionTestsPath', server.remote(suite)],
            ['skipWelcome', 'true'],
            ...(opening.payload ?? []),
          ],
        }),
      );
      const code = await within(options.timeoutMs ?? 120_000, ended);
      await workbench.shot(`host-${options.name}`);
      const lines = (await readFile(results, 'utf8').catch(() => ''))
        .split('\n')
        .filter((line) => line !== '');
      const figures = await readFile(join(server.folder, 'figures.txt'), 'utf8').catch(() => '');
      if (figures !== '') figure(`${options.name}:\n${figures}`);
      const outcomes = lines.map((line) => OutcomeSchema.parse(JSON.parse(line)));
      const failed = outcomes.some(({ state }) => state === 'failed');
      if (code === undefined || (code !== 0 && !failed) || outcomes.length === 0) {
        const how = code === undefined ? 'did not end in time' : `ended with ${String(code)}`;
        const ran = outcomes.map(({ title, state }) => `${state} ${title}`).join('\n');
        throw new Error(`the suites ${how}; so far:\n${ran}\n${server.said}`);
      }
      return { outcomes, blocked };
    } finally {
      await workbench.close();
    }
  } finally {
    await server.stop();
  }
}

async function within<T>(ms: number, work: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<undefined>((resolve) => (timer = setTimeout(() => resolve(undefined), ms)));
  try {
    return await Promise.race([work, limit]);
  } finally {
    clearTimeout(timer);
  }
}

/** For an assertion: nothing when all went well, else what did not and why. */
export function failures(outcomes: readonly Outcome[]): string {
  return outcomes
    .filter(({ state }) => state === 'failed')
    .map(({ title, error }) => `✗ ${title}\n${error ?? ''}`)
    .join('\n\n');
}
