import { afterEach, describe, expect, test } from 'vitest';
import type { ConversationItem } from '../../../protocol/conversation.ts';
import { editorPaths } from '../harness/editor-paths.ts';
import { message, page, running, state } from './conversations.ts';
import { PageHarness } from './page-harness.ts';

const TOTAL = 600;
const PAGE = 100;
/** A place is kept a moment after the last scroll. */
const KEPT = { timeout: 10_000 };

let harness: PageHarness;

/** Of different heights. */
const items = (from: number, to: number): ConversationItem[] =>
  Array.from({ length: to - from }, (_, n) =>
    message(from + n + 1, `Message ${from + n + 1}. ${'And so on. '.repeat(((from + n) * 7) % 60)}`),
  );

/** A supervisor's answer: a page before, or after, a cursor. */
function read(params: unknown) {
  const { before, after } = params as { before?: string; after?: string };
  const idOf = (cursor: string): number => Number(cursor.split('.')[1]);
  const end = before === undefined ? TOTAL : idOf(before) - 1;
  const start = after === undefined ? Math.max(0, end - PAGE) : idOf(after);
  const last = after === undefined ? end : Math.min(TOTAL, start + PAGE);
  return page(items(start, last), {
    before: start === 0 ? null : `${start + 1}.${start + 1}`,
    after: last === TOTAL ? null : `${last}.${last}`,
    total: TOTAL,
  });
}

const begin = (): Promise<void> => harness.send('begin', read({}));

async function open() {
  harness = await PageHarness.open({ chromium: editorPaths().chromium, answers: { read } });
  await harness.send('state', state());
  await begin();
  const { page: view } = harness;
  await view.getByText(`Message ${TOTAL}.`).waitFor();
  return view;
}

/** The first row on the screen, and how far it is below the top of the view. */
const seen = async (): Promise<{ id: string; top: number }> =>
  JSON.parse(
    await harness.page.evaluate(`(() => {
      const box = document.querySelector('.timeline');
      const edge = box.getBoundingClientRect().top;
      for (const row of box.querySelectorAll('[data-key]')) {
        const { top, bottom } = row.getBoundingClientRect();
        if (bottom > edge + 1) return JSON.stringify({ id: row.dataset.key.split(' ').at(-1), top: Math.round(top - edge) });
      }
    })()`),
  ) as { id: string; top: number };
const keptPlace = (): Promise<unknown> =>
  harness.page.evaluate(`JSON.parse(sessionStorage.getItem('state') ?? '{}').place?.id ?? null`);
const scrollUp = async (): Promise<void> => {
  await harness.page.getByRole('log').hover();
  // Into pages that have to be read.
  for (let pages = 0; pages < 3; pages += 1) {
    await harness.page.evaluate(`document.querySelector('.timeline').scrollTop = 0`);
    await harness.drawn();
    await harness.page.waitForTimeout(200);
  }
  await harness.page.mouse.wheel(0, 900);
  await harness.drawn();
};
/** Resolves with what is seen, once it is kept. */
async function settled() {
  let last = await seen();
  await expect
    .poll(async () => {
      const before = last;
      last = await seen();
      return JSON.stringify(before) === JSON.stringify(last) && String(await keptPlace()) === last.id;
    }, KEPT)
    .toBe(true);
  return last;
}
async function isAt({ id, top }: { id: string; top: number }): Promise<void> {
  await expect.poll(async () => (await seen()).id, KEPT).toBe(id);
  await expect.poll(async () => Math.abs((await seen()).top - top), KEPT).toBeLessThanOrEqual(3);
}

afterEach(() => harness.closeWithoutFaults());

describe('a person who reads further up stays there', () => {
  test('when the page is loaded again, or was hidden', async () => {
    const view = await open();
    await scrollUp();
    const place = await settled();
    expect(Number(place.id)).toBeLessThan(TOTAL - PAGE);
    await harness.reload();
    await harness.send('state', state());
    await begin();
    await isAt(place);
    await view.getByRole('button', { name: 'Latest' }).click();
    await view.getByText(`Message ${TOTAL}.`).waitFor();
    await expect.poll(keptPlace, KEPT).toBe(null);
    // From the end, a page follows what comes.
    await harness.reload();
    await harness.send('state', running());
    await begin();
    await harness.send('changed', { batch: 1, items: [message(TOTAL + 1, 'One more')], chunks: [] });
    const last = view.getByText('One more');
    await expect
      .poll(async () => {
        const { y = Infinity, height = 0 } = (await last.boundingBox()) ?? {};
        return y + height <= (view.viewportSize()?.height ?? 0);
      })
      .toBe(true);
  });

  test('when another part of the page was shown', async () => {
    const view = await open();
    await scrollUp();
    const place = await settled();
    await view.getByRole('tab', { name: 'Snapshots' }).click();
    await view.getByRole('log').waitFor({ state: 'detached' });
    await view.getByRole('tab', { name: 'Conversation' }).click();
    await isAt(place);
  });

  test('when the supervisor is another one, and the conversation begins again', async () => {
    await open();
    await scrollUp();
    const place = await settled();
    await begin();
    await isAt(place);
  });
});
