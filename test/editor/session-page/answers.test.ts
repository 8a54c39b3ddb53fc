import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import type { ConversationItem } from '../../../protocol/conversation.ts';
import { editorPaths } from '../harness/editor-paths.ts';
import { page, permission, prompt, running } from './conversations.ts';
import { PageHarness } from './page-harness.ts';

let harness: PageHarness;

async function open(options: Partial<Parameters<typeof PageHarness.open>[0]> = {}) {
  harness = await PageHarness.open({ chromium: editorPaths().chromium, ...options });
  await harness.send('state', running());
  await harness.send('begin', page([prompt(1, 'go'), permission(2)]));
  return harness.page;
}

const answeredBy = (name: string, kind: 'allow_once' | 'reject_once'): ConversationItem =>
  ({
    ...permission(2),
    answer: { id: 'one', name: 'One', kind },
    by: { kind: 'client', name },
  }) as ConversationItem;
const answers = (): unknown[] => harness.requests.filter(({ name }) => name === 'answer');

afterEach(() => harness.closeWithoutFaults());

test.each(['dark', 'light', 'contrast'] as const)(
  'an answer that comes too late says who was faster, in place of the question (%s)',
  async (theme) => {
    const view = await open({
      theme,
      answers: { answer: () => ({ tooLate: 'the answer was Reject, given on the command line' }) },
    });
    await view.getByRole('button', { name: 'Always Allow' }).click();
    const late = view.getByText('No answer is needed any more to “npm install --save-dev fast-check”');
    await late.getByText('the answer was Reject, given on the command line.').waitFor();
    expect(await view.getByRole('button', { name: 'Always Allow' }).count()).toBe(0);
    await harness.send('changed', {
      batch: 1,
      items: [answeredBy('holdfast-cli', 'reject_once')],
      chunks: [],
    });
    const mark = view.locator('.mark', { hasText: 'Rejected: npm install --save-dev fast-check' });
    await mark.getByText('on the command line').waitFor();
    await mark.getByRole('status').getByText('Your answer came later and does not count.').waitFor();
    expect(await late.count()).toBe(0);
    // It is no failure.
    expect(await view.getByRole('alert').count()).toBe(0);
    await view.screenshot({ path: join(editorPaths().screenshots, `session-page-too-late-${theme}.png`) });
  },
);

test('an answer that counts is given once, and says where', async () => {
  const view = await open();
  await view.getByRole('button', { name: 'Allow', exact: true }).click();
  await expect.poll(answers).toHaveLength(1);
  await harness.drawn();
  for (const name of ['Allow', 'Always Allow', 'Reject']) {
    expect(await view.getByRole('button', { name, exact: true }).isDisabled()).toBe(true);
  }
  await harness.send('changed', {
    batch: 1,
    items: [answeredBy('holdfast-vscode', 'allow_once')],
    chunks: [],
  });
  await view
    .locator('.mark', { hasText: 'Allowed: npm install --save-dev fast-check · in VS Code' })
    .waitFor();
  expect(await view.getByText('came later').count()).toBe(0);
});
