import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { editorPaths } from '../harness/editor-paths.ts';
import { page, prompt, state } from './conversations.ts';
import { PageHarness } from './page-harness.ts';

let harness: PageHarness;

afterEach(() => harness.closeWithoutFaults());

/** A conversation of 3,000 prompts, of which every hundredth has the word. */
const TOTAL = 3000;
const item = (id: number) => prompt(id, id % 100 === 0 ? `needle ${id}` : `hay ${id}`);
const range = (from: number, to: number) =>
  Array.from({ length: Math.max(0, to - from + 1) }, (_, n) => item(from + n));
function pageOf(from: number, to: number) {
  return page(range(from, to), {
    before: from > 1 ? `${from}.${from}` : null,
    after: to < TOTAL ? `${to}.${to}` : null,
  });
}
const read = (params: unknown) => {
  const { before, after } = params as { before?: string; after?: string };
  const id = Number((before ?? after ?? '').split('.')[1]);
  if (before !== undefined) return pageOf(Math.max(1, id - 100), id - 1);
  if (after !== undefined) return pageOf(id + 1, Math.min(TOTAL, id + 100));
  return pageOf(TOTAL - 99, TOTAL);
};
const SEARCH_PAGE = 10;
const search = (params: unknown) => {
  const { text, cursor } = params as { text: string; cursor?: string };
  if (text !== 'needle') return { results: [], next: null, complete: true };
  const from = cursor === undefined ? TOTAL : Number(cursor);
  const ids = Array.from({ length: SEARCH_PAGE }, (_, n) => from - n * 100).filter((id) => id > 0);
  const last = from - SEARCH_PAGE * 100;
  const results = ids.map((id) => ({
    ...{ id, at: id, time: '2026-01-01T10:00:00.000Z', excerpt: `a needle ${id}` },
  }));
  return { results, next: last > 0 ? String(last) : null, complete: true };
};

async function open(
  options: Partial<Parameters<typeof PageHarness.open>[0]> = {},
): Promise<PageHarness['page']> {
  harness = await PageHarness.open({
    ...{ chromium: editorPaths().chromium, height: 600, answers: { read, search } },
    ...options,
  });
  await harness.send('state', state());
  await harness.send('begin', pageOf(TOTAL - 99, TOTAL));
  return harness.page;
}

test.each([
  ['dark', 900],
  ['light', 900],
  ['contrast', 900],
  ['dark', 300],
] as const)(
  'words are found in the whole conversation, not only in what is loaded (%s, %d pixels)',
  async (theme, width) => {
    const view = await open({ theme, width });
    await view.getByText('hay 2999').waitFor();
    await view.keyboard.press('Control+f');
    const box = view.getByRole('searchbox', { name: 'Find in the conversation' });
    await box.pressSequentially('needle');
    await view.getByText('1 of 10+').waitFor();
    const found = view.locator('.row.found');
    await expect.poll(() => found.textContent()).toContain('needle 3000');
    // Further back than what the page has read.
    await box.press('Enter');
    await view.getByText('2 of 10+').waitFor();
    await expect.poll(() => found.textContent()).toContain('needle 2900');
    for (let n = 3; n <= 12; n += 1) {
      await box.press('Enter');
      await view.getByText(`${n} of ${n <= 10 ? 10 : 20}+`).waitFor();
    }
    await expect.poll(() => found.textContent()).toContain('needle 1900');
    await expect
      .poll(() =>
        found.evaluate(
          (row: { getBoundingClientRect: () => { top: number } }) => row.getBoundingClientRect().top,
        ),
      )
      .toBeGreaterThan(0);
    // What is before it is there too.
    await view.getByText('hay 1899').waitFor({ state: 'attached' });
    await harness.drawn();
    await view.screenshot({
      path: join(editorPaths().screenshots, `session-page-find-${theme}-${width}.png`),
    });
    expect(await view.evaluate('document.documentElement.scrollWidth')).toBe(width);
    await box.press('Shift+Enter');
    await view.getByText('11 of 20+').waitFor();
    await expect.poll(() => found.textContent()).toContain('needle 2000');
    // What goes on at the end does not move the view, and the end is a click away.
    await view.getByRole('button', { name: 'Latest' }).click();
    await view.getByText('hay 2999').waitFor();
    await box.press('Escape');
    await box.waitFor({ state: 'detached' });
  },
);

test('a search without a match, and one that fails, say so', async () => {
  const view = await open({
    answers: {
      read,
      search: (params) => {
        if ((params as { text: string }).text === 'broken')
          throw new Error('Nothing was searched: there is no index');
        return search(params);
      },
    },
  });
  await view.getByRole('button', { name: 'Find', exact: true }).click();
  const box = view.getByRole('searchbox', { name: 'Find in the conversation' });
  await box.fill('nothing');
  await view.getByText('Nothing found').waitFor();
  await box.fill('broken');
  await view.getByText('there is no index').waitFor();
  expect(await view.locator('.row.found').count()).toBe(0);
  await view.getByRole('button', { name: 'Close the search' }).click();
  await box.waitFor({ state: 'detached' });
});
