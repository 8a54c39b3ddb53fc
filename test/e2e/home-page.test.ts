import { afterEach, beforeEach, expect, test } from 'vitest';
import { TestHome } from '../setup/test-home.ts';
import { journey } from './harness/user.ts';
import type { User } from './harness/user.ts';

const SEEN = { timeout: 60_000 };
const MAX_TABS = 20;
/** The top of the window, which has all of the page. */
const PICTURE_HEIGHT = 520;

let home: TestHome;

beforeEach(async () => {
  home = await TestHome.create();
});
afterEach(async () => {
  await home.dispose();
});

/** What has the focus on the page, as a person hears it. */
function focused(person: User): Promise<string> {
  return person.webview
    .locator(':focus')
    .first()
    .evaluate((one: { textContent: string | null }) => one.textContent ?? '', undefined, { timeout: 5_000 })
    .catch(() => '');
}

test('with the mouse alone, from an empty window to a running example and its answer', () =>
  journey('home-mouse', { home: home.path, open: {} }, async (person) => {
    await person.openSessionsView();
    const welcome = person.page.locator('.sidebar .welcome-view-content');
    await welcome.locator('.monaco-button', { hasText: 'Open Home' }).click(SEEN);
    const page = person.webview;
    await page.locator('.first-run li.done', { hasText: 'Images' }).waitFor(SEEN);
    await person.screenshot('home-first-run-dark', PICTURE_HEIGHT);
    await page.getByRole('button', { name: 'Start' }).click();
    const card = page.locator('.card', { hasText: 'counter' });
    await card.locator('.said', { hasText: '{"count":1}' }).waitFor(SEEN);
    // The way to a first session is behind the person.
    expect(await page.getByRole('heading', { name: 'Get started' }).count()).toBe(0);
    await person.screenshot('home-answer-dark');
    await card.getByRole('button', { name: 'counter', exact: true }).click();
    await person.tab('counter').first().waitFor();
    await page.getByText('Done').first().waitFor(SEEN);
  }));

test('with the keyboard alone, from an empty window to a running example and its answer', () =>
  journey('home-keyboard', { home: home.path, open: {}, colorScheme: 'light' }, async (person) => {
    await person.runCommand('Agent: Open Home');
    const page = person.webview;
    await page.locator('.first-run li.done', { hasText: 'Images' }).waitFor(SEEN);
    await person.screenshot('home-first-run-light', PICTURE_HEIGHT);
    // The box has the focus. With nothing written the example gets an empty input.
    await person.page.keyboard.press('Enter');
    const card = page.locator('.card', { hasText: 'counter' });
    await card.locator('.said', { hasText: '{"count":1}' }).waitFor(SEEN);
    await person.page.keyboard.type('{"again": true}');
    await person.page.keyboard.press('Enter');
    await expect.poll(() => page.locator('.card').count(), SEEN).toBe(2);
    await person.screenshot('home-answer-light');
    let tabs = 0;
    while ((await focused(person)) !== 'counter') {
      expect((tabs += 1)).toBeLessThan(MAX_TABS);
      await person.page.keyboard.press('Tab');
    }
    await person.page.keyboard.press('Enter');
    await person.tab('counter').first().waitFor();
    await page.getByText('Done').first().waitFor(SEEN);
  }));
