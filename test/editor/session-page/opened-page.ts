import { join } from 'node:path';
import { editorPaths } from '../harness/editor-paths.ts';
import { PageHarness } from './page-harness.ts';

/** The page of the running test. Each file closes it after each test. */
export let harness: PageHarness;

export async function open(
  options: Partial<Parameters<typeof PageHarness.open>[0]> = {},
): Promise<PageHarness> {
  harness = await PageHarness.open({ chromium: editorPaths().chromium, ...options });
  return harness;
}

export async function picture(name: string): Promise<void> {
  await harness.drawn();
  await harness.page.screenshot({ path: join(editorPaths().screenshots, `session-page-${name}.png`) });
}

/** What the page asks by itself. */
const UNASKED: ReadonlySet<string> = new Set(['ready', 'shown', 'turnLines', 'manifests', 'manifest']);
/** What the page asked the extension for, without the messages that keep it going. */
export const asked = (): unknown[] => harness.requests.filter(({ name }) => !UNASKED.has(name));
