import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import type { ConversationItem } from '../../../protocol/conversation.ts';
import { editorPaths } from '../harness/editor-paths.ts';
import {
  CONTENT,
  NEXT_TURN,
  RICH,
  TURN,
  item,
  message,
  page,
  permission,
  prompt,
  running,
  state,
} from './conversations.ts';
import { PageHarness } from './page-harness.ts';

let harness: PageHarness;

async function open(
  options: Partial<Parameters<typeof PageHarness.open>[0]> = {},
): Promise<PageHarness['page']> {
  harness = await PageHarness.open({ chromium: editorPaths().chromium, ...options });
  return harness.page;
}

async function picture(name: string): Promise<void> {
  await harness.drawn();
  await harness.page.screenshot({ path: join(editorPaths().screenshots, `session-page-${name}.png`) });
}

afterEach(() => harness.closeWithoutFaults());

/** Where each of the texts is; all are there, once. */
function placesIn(tree: string, texts: readonly string[]): number[] {
  return texts.map((text) => {
    expect(tree.split(text).length - 1, `${text} in:\n${tree}`).toBe(1);
    return tree.indexOf(text);
  });
}

describe('a screen reader', () => {
  test('reads the page in the order in which it is seen', async () => {
    const view = await open();
    await harness.send('state', running());
    await harness.send(
      'begin',
      page([...RICH, prompt(20, 'Use fast-check.', { turnId: NEXT_TURN }), permission(21)], {
        queued: [prompt(30, 'Then the changelog.', { state: 'queued', turnId: 'turn-cccccccccccccccc' })],
      }),
    );
    await view.getByRole('heading', { name: 'What I changed' }).waitFor();
    const places = placesIn(await view.locator('body').ariaSnapshot(), [
      'heading "parser" [level=1]',
      'tablist "Parts of the session"',
      'group "Show"',
      'log "Conversation"',
      'The CSV parser loses the last row.',
      'Plan of the agent',
      'button "Read parser.ts"',
      'button "Edit parser.ts"',
      'button "npm test"',
      'Denied: registry.npmjs.org:443',
      'heading "What I changed"',
      'button "See Changes"',
      'Use fast-check.',
      'region "The agent asks: npm install --save-dev fast-check"',
      'status: Waiting for you',
      'list "Prompts that wait"',
      'textbox "Prompt for the agent"',
      'button "Stop the running turn"',
      'button "Add to the queue"',
    ]);
    expect(places).toEqual(places.toSorted((a, b) => a - b));
  });

  test('announces what is added, politely: a message when it is whole, and nothing of what is read again', async () => {
    const older = Array.from({ length: 100 }, (_, n) => message(n + 1, `Earlier ${n + 1}`));
    const view = await open({ height: 400, answers: { read: () => page(older) } });
    await harness.send('state', running());
    const newer = Array.from({ length: 100 }, (_, n) => message(n + 101, `Message ${n + 101}`));
    await harness.send('begin', page(newer, { before: '101.101' }));
    const log = view.getByRole('log', { name: 'Conversation' });
    await view.getByText('Message 200').waitFor();
    expect(await log.getAttribute('aria-live')).toBe('polite');
    expect(await log.getAttribute('aria-relevant')).toBe('additions');

    const chunk = { turnId: TURN, message: 300, role: 'agent', offset: 0, text: 'It begins' } as const;
    await harness.send('changed', { batch: 1, items: [], chunks: [chunk] });
    const words = view.locator('.message', { hasText: 'It begins' });
    await words.waitFor();
    expect(await words.getAttribute('aria-busy')).toBe('true');
    await harness.send('changed', { batch: 2, items: [message(300, 'It begins and ends.')], chunks: [] });
    await words.getByText('It begins and ends.').waitFor();
    await expect.poll(() => words.getAttribute('aria-busy')).toBe('false');

    await log.evaluate((box: { scrollTop: number }) => {
      box.scrollTop = 700;
    });
    await expect.poll(() => log.getAttribute('aria-live')).toBe('off');
    await log.evaluate((box: { scrollTop: number }) => {
      box.scrollTop = 0;
    });
    await view.getByText('Earlier 100').waitFor({ state: 'attached' });
    expect(await log.getAttribute('aria-live')).toBe('off');
    await view.getByRole('button', { name: 'Latest' }).click();
    await expect.poll(() => log.getAttribute('aria-live')).toBe('polite');
  });
});

test.each([
  ['turns', 'no-preference'],
  ['stands still', 'reduce'],
] as const)('what works %s where motion is %s', async (_how, motion) => {
  const view = await open({ reducedMotion: motion === 'reduce' });
  await harness.send('state', running());
  await harness.send('begin', page([prompt(1, 'go')]));
  const spin = view.locator('.working .spin');
  await spin.waitFor();
  const name = () =>
    spin.evaluate((one: never) => (globalThis as never as Styles).getComputedStyle(one).animationName);
  expect(await name()).toBe(motion === 'reduce' ? 'none' : 'spin');
  // The setting of VS Code, whatever the system says.
  await view.evaluate("document.body.classList.add('vscode-reduce-motion')");
  expect(await name()).toBe('none');
});
interface Styles {
  getComputedStyle(element: unknown): { animationName: string };
}

test('a window of 900 pixels at a zoom of 200 % shows and reaches everything', async () => {
  const view = await open({ width: 450, height: 350 });
  await harness.send('state', running({ queuedTurns: 1 }));
  await harness.send('begin', page([...RICH, permission(21)]));
  await view.getByRole('button', { name: 'Reject' }).waitFor();
  await picture('zoomed');
  expect(await view.evaluate('document.documentElement.scrollWidth')).toBe(450);
  for (const name of [
    'Add to the queue',
    'Stop the running turn',
    'Attach files',
    'Find',
    'Show every event',
  ]) {
    const box = await view.getByRole('button', { name, exact: true }).boundingBox();
    expect(box !== null && box.x >= 0 && box.x + box.width <= 450 && box.y + box.height <= 350, name).toBe(
      true,
    );
  }
  await view.getByRole('button', { name: 'Reject' }).click();
  await expect
    .poll(() => harness.requests.at(-1))
    .toMatchObject({ name: 'answer', params: { answer: 'no' } });
});

test.each(['dark', 'light', 'contrast'] as const)('checks say how they ended, in %s', async (theme) => {
  const view = await open({
    theme,
    height: 500,
    answers: {
      content: () => ({ text: '1 test failed:\n  \u001b[31mkeeps the last row\u001b[0m', isCut: false }),
    },
  });
  const check = (id: number, more: object): ConversationItem =>
    item(id, 'mark', {
      ...{ mark: 'check', of: 'workspace', exitCode: 0, ms: 820, contents: [CONTENT], ...more },
    } as never);
  await harness.send('state', state());
  await harness.send(
    'begin',
    page([
      prompt(1, 'go'),
      check(2, { name: 'types' }),
      check(3, { name: 'tests <b>', exitCode: 1, ms: 61_000 }),
      check(4, { name: 'lint', of: 'accepted' }),
    ]),
  );
  await view.getByText('types passed · 820 ms').waitFor();
  await view.getByText('lint passed · on the accepted files · 820 ms').waitFor();
  const failed = view.locator('.row', { hasText: 'tests <b> failed with exit code 1 · 1 min 1 s' });
  await failed.getByRole('button', { name: 'Show Output' }).click();
  await failed.getByText('keeps the last row').waitFor();
  await picture(`checks-${theme}`);
  await failed.getByRole('button', { name: 'Hide Output' }).click();
  await failed.getByText('keeps the last row').waitFor({ state: 'detached' });
  expect(harness.requests.filter(({ name }) => name === 'content')).toHaveLength(1);
  await view.getByRole('button', { name: 'Changes', exact: true }).click();
  expect(await view.locator('.mark').count()).toBe(0);
  await view.getByRole('button', { name: 'Commands', exact: true }).click();
  expect(await view.locator('.mark').count()).toBe(3);
});

test('a note about an event is a line with its text, which stays text', async () => {
  const view = await open({ height: 300 });
  await harness.send('state', state());
  const note = { mark: 'note', icon: 'warning', note: 'No files of <b>main</b>', isWarning: true };
  await harness.send('begin', page([prompt(1, 'go'), item(2, 'mark', note as never)]));
  await view.locator('.mark .codicon-warning').waitFor();
  await view.getByText('No files of <b>main</b>').waitFor();
});

test('a prompt that was taken back, and a turn that was stopped, are no failures', async () => {
  const view = await open({ height: 500 });
  const ended = { status: 'cancelled', exitCode: null } as const;
  const error = { code: 'cancelled', message: 'The turn was cancelled', traceback: null };
  await harness.send('state', state());
  await harness.send(
    'begin',
    page([
      prompt(1, 'Taken back while it waited.'),
      item(2, 'end', { ...ended, error, turnMs: null }),
      prompt(3, 'Stopped.', { turnId: NEXT_TURN }),
      item(4, 'end', { ...ended, error, turnMs: 820, turnId: NEXT_TURN }),
    ]),
  );
  const [back, stopped] = [view.locator('.end').first(), view.locator('.end').last()];
  await back.getByText('Taken back').waitFor();
  expect(await back.getByRole('button').count()).toBe(0);
  await stopped.getByText('Cancelled · 820 ms').waitFor();
  expect(await stopped.getByRole('button').count()).toBe(3);
  expect(await view.locator('.error').count()).toBe(0);
  await picture('cancelled');
});

test('characters that have names are shown, and what names none stays as it is', async () => {
  const view = await open();
  await harness.send('state', state());
  const text =
    '&copy; &AMP;&lt;b&gt; &semi; &CounterClockwiseContourIntegral; &notit; &nosuch; &#x263a; `&copy;`';
  await harness.send('begin', page([message(1, text)]));
  expect(await view.locator('.message').innerText()).toBe('© &<b> ; ∳ &notit; &nosuch; ☺ &copy;');
});

test('a long message is what it would be in one piece, while it is written and afterwards', async () => {
  const view = await open();
  const section = (n: number): string =>
    `## Section ${n}\n\n3. one\n\n   \`\`\`ts\n   const a = ${n};\n\n   f(a);\n   \`\`\`\n4. two\n\n` +
    `See [the file][f] and [1].\n\n| a | b |\n|---|---|\n| ${n} | **x** |\n\n\`\`\`\nplain\n\nstill code\n\`\`\`\n\n`;
  const whole = Array.from({ length: 60 }, (_, n) => section(n)).join('');
  const text = `${whole}[f]: src/parser.ts "It"\n\n[1]: https://example.org/one\n`;
  await harness.send('state', running());
  await harness.send('begin', page([prompt(1, 'go')]));
  const step = 1500;
  for (let offset = 0, batch = 1; offset < text.length; offset += step, batch += 1) {
    const chunk = {
      turnId: TURN,
      message: 2,
      role: 'agent',
      offset,
      text: text.slice(offset, offset + step),
    } as const;
    await harness.send('changed', { batch, items: [], chunks: [chunk] });
  }
  const written = view.locator('.message .markdown');
  const countOf = (selector: string) => written.locator(selector).count();
  await expect.poll(() => countOf('h2')).toBe(60);
  await expect.poll(() => countOf('[data-link="src/parser.ts"]')).toBe(60);
  expect(await countOf('[data-link="https://example.org/one"]')).toBe(60);
  // A list that a piece of code interrupts goes on, with its number.
  expect([await countOf('ol'), await countOf('ol > li'), await countOf('ol pre')]).toEqual([60, 120, 60]);
  expect([await countOf('table'), await countOf('.code')]).toEqual([60, 120]);
  const shown = await written.innerText();
  await harness.send('changed', { batch: 99, items: [message(2, text)], chunks: [] });
  await expect.poll(() => view.locator('.message').getAttribute('aria-busy')).toBe('false');
  expect(await written.innerText()).toBe(shown);
  // Only what changed was drawn again.
  expect(
    await written.evaluate((one: { childElementCount: number }) => one.childElementCount),
  ).toBeGreaterThan(3);
});
