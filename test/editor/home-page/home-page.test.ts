import { statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import type { HomeRequests, ToHome } from '../../../webview/home-messages.ts';
import { editorPaths } from '../harness/editor-paths.ts';
import { HOSTILE_TEXTS } from '../session-page/hostile-texts.ts';
import { giveFile } from '../session-page/given-files.ts';
import { PageHarness } from '../session-page/page-harness.ts';
import { LOCAL_HOST, SESSION, card, cards, home, words } from './home-states.ts';

/** Of its script: a third of the session page's. */
const MOST_BYTES = 128 * 1024;
const OTHER = 'ses-bbbbbbbbbbbbbbbb';
const THIRD = 'ses-cccccccccccccccc';

let harness: PageHarness<HomeRequests, ToHome>;

async function open(options: Partial<Parameters<typeof PageHarness.openHome>[0]> = {}) {
  harness = await PageHarness.openHome({
    chromium: editorPaths().chromium,
    ...options,
    answers: { ready: () => ({ uploads: [] }), words: () => words(), ...options.answers },
  });
  return harness;
}

async function show(...sessions: ReturnType<typeof card>[]): Promise<void> {
  await harness.send('sessions', { isSnapshot: true, changed: sessions, removed: [], left: 0 });
}

async function picture(name: string): Promise<void> {
  await harness.drawn();
  await harness.page.screenshot({ path: join(editorPaths().screenshots, `home-page-${name}.png`) });
}

afterEach(() => harness.closeWithoutFaults());

/** What the page asked for, without what it asks by itself. */
const asked = (): unknown[] => harness.requests.filter(({ name }) => name !== 'ready' && name !== 'words');

const PartSchema = z.object({ upload: z.string(), offset: z.number(), total: z.number(), bytes: z.string() });
const StartedSchema = z.object({
  params: z.object({
    prompt: z.string(),
    files: z.array(z.object({ upload: z.string(), name: z.string(), bytes: z.number() })),
  }),
});
const give = (how: 'paste' | 'drop', name: string, bytes: Buffer) => giveFile(harness.page, how, name, bytes);

describe('the sessions', () => {
  test.each(['dark', 'light', 'contrast'] as const)('stand by what they need, in %s', async (theme) => {
    const { page } = await open({
      theme,
      answers: {
        words: (params) => {
          const { session } = params as { session: string };
          return session === SESSION ? words({ asks: 'npm install fast-check' }) : words({ changedFiles: 3 });
        },
      },
    });
    await harness.send('state', home());
    await show(
      card({ id: THIRD, title: 'notes' }),
      card({ id: OTHER, title: 'report', need: 'waiting', reason: 'ended' }),
      card({ need: 'waiting', reason: 'asks', lastActiveAt: '2026-11-21T10:00:00.000Z' }),
      ...cards(1, { title: 'build', need: 'running', status: 'running, 1 queued' }),
    );
    await page.getByText('npm install fast-check').waitFor();
    expect(await page.getByRole('heading', { level: 2 }).allTextContents()).toEqual([
      'Waiting for you 2',
      'Running 1',
      'Earlier 1',
    ]);
    expect(await page.getByRole('heading', { level: 3 }).allTextContents()).toEqual(
      ['parser', 'report', 'build', 'notes'].map((title) => ` ${title}`),
    );
    const report = page.getByRole('listitem').filter({ hasText: 'report' });
    await report.getByText('finished').waitFor();
    await report.getByText('3 changed files').waitFor();
    await picture(`rich-${theme}`);
    await page.getByRole('button', { name: 'Answer… parser' }).click();
    await report.getByRole('button', { name: 'Review Changes' }).click();
    await page.getByRole('button', { name: 'notes', exact: true }).click();
    await expect.poll(asked).toEqual([
      { name: 'sessionCommand', params: { command: 'answerPermission', session: SESSION } },
      { name: 'sessionCommand', params: { command: 'reviewChanges', session: OTHER } },
      { name: 'sessionCommand', params: { command: 'openSessionPage', session: THIRD } },
    ]);
  });

  test.each([
    ['dark', 900],
    ['light', 900],
    ['contrast', 900],
    ['dark', 300],
  ] as const)('that ask are answered in place, once (%s, %d pixels)', async (theme, width) => {
    let fails = true;
    const question = {
      id: 'perm-aaaaaaaaaaaaaaaa',
      title: 'npm install fast-check',
      about: 'package.json, test/parser.test.ts:12',
      answers: [
        { id: 'yes', label: 'Allow', effect: 'allows it this time', isAllowing: true },
        { id: 'always', label: 'Always Allow', effect: 'allows it from now on', isAllowing: true },
        { id: 'no', label: 'Reject', effect: 'rejects it this time', isAllowing: false },
      ],
    };
    const { page } = await open({
      ...{ theme, width },
      answers: {
        words: () => words({ asks: question.title, questions: [question] }),
        answer: () => {
          if (fails) throw new Error('The permission was not answered: no supervisor answers');
          return {};
        },
      },
    });
    await harness.send('state', home());
    await show(card({ need: 'waiting', reason: 'asks' }));
    const asks = page.getByRole('region', { name: 'parser asks: npm install fast-check' });
    await asks.getByText('package.json, test/parser.test.ts:12').waitFor();
    // Nothing else has to be opened for it.
    expect(await page.getByRole('button', { name: 'Answer…' }).count()).toBe(0);
    // Its effect is beside the name, which is the agent's.
    await asks.getByText('Always Allow · allows it from now on').waitFor();
    await picture(`asks-${theme}-${width}`);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width);
    await asks.getByRole('button', { name: 'Reject' }).click();
    await page.getByText('no supervisor answers').waitFor();
    fails = false;
    await asks.getByRole('button', { name: 'Allow · allows it this time', exact: true }).click();
    const answered = { session: SESSION, question: question.id };
    await expect.poll(asked).toEqual([
      { name: 'answer', params: { ...answered, answer: 'no' } },
      { name: 'answer', params: { ...answered, answer: 'yes' } },
    ]);
    // A second click answers nothing.
    expect(await asks.getByRole('button', { name: 'Reject' }).isDisabled()).toBe(true);
  });

  test('move when they change, and are read again only then', async () => {
    const { page } = await open();
    await harness.send('state', home());
    await show(card({ need: 'running', status: 'running' }), card({ id: OTHER, title: 'report' }));
    const reads = () => harness.requests.filter(({ name }) => name === 'words').length;
    await expect.poll(reads).toBe(2);
    await harness.send('sessions', {
      isSnapshot: false,
      changed: [card({ need: 'waiting', reason: 'ended', seq: 2 })],
      removed: [OTHER],
      left: 0,
    });
    await page.getByRole('heading', { name: 'Waiting for you 1' }).waitFor();
    await page.getByText('The parser keeps the last row now').waitFor();
    await expect.poll(reads).toBe(3);
    expect(await page.getByRole('heading', { level: 3 }).count()).toBe(1);
    // The state of a host says nothing about sessions.
    await harness.send('state', home({ hosts: [{ ...LOCAL_HOST, state: 'connecting' }] }));
    await page.getByText('Connecting to the supervisor').waitFor();
    expect(reads()).toBe(3);
  });

  test('that failed say so', async () => {
    const { page } = await open({
      answers: { words: () => words({ words: 'sh: 1: make: not found', isFailure: true }) },
    });
    await harness.send('state', home());
    await show(card({ need: 'waiting', reason: 'ended' }));
    await page.locator('.card .how', { hasText: 'failed' }).waitFor();
    await page.locator('.card .said.failed', { hasText: 'make: not found' }).waitFor();
    await picture('failed-dark');
  });

  test('are many, and are drawn and read as a person looks at them', async () => {
    const { page } = await open({ height: 700 });
    await harness.send('state', home());
    const many = cards(200);
    await harness.send('sessions', { isSnapshot: true, changed: many, removed: [], left: 4_800 });
    await page.getByRole('heading', { name: 'Earlier 200' }).waitFor();
    await page.getByText('4,800 more sessions in the Sessions view.').waitFor();
    expect(await page.locator('.card').count()).toBe(20);
    await harness.drawn();
    expect(harness.requests.filter(({ name }) => name === 'words').length).toBeLessThan(15);
    await picture('many-dark');
    await page.getByRole('button', { name: 'Show 20 More' }).click();
    await expect.poll(() => page.locator('.card').count()).toBe(40);
  });

  test('of several hosts name their hosts, and a host that is away says so', async () => {
    const { page } = await open();
    const farm = { name: 'farm', title: 'farm', state: 'offline', why: 'ssh: no route to host.' } as const;
    await harness.send('state', home({ hosts: [LOCAL_HOST, farm] }));
    await show(card(), card({ id: OTHER, title: 'report', host: 'farm' }));
    await page.locator('.card', { hasText: 'report' }).getByText('farm').waitFor();
    await page.getByText('farm: ssh: no route to host.').waitFor();
    await picture('hosts-dark');
    await page.getByRole('button', { name: 'Connect' }).click();
    expect(asked()).toEqual([{ name: 'connectHost', params: { host: 'farm' } }]);
  });

  test('fit into 300 pixels', async () => {
    const { page } = await open({ width: 300, answers: { words: () => words({ words: 'x'.repeat(200) }) } });
    await harness.send('state', home());
    await show(
      card({ need: 'waiting', reason: 'asks', title: 'a-name-without-any-space-'.repeat(4) }),
      card({ id: OTHER, prompt: 'y'.repeat(300) }),
    );
    await page.getByText('xxx').first().waitFor();
    await picture('narrow-dark');
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(300);
    expect(await page.evaluate("document.querySelector('main').scrollWidth")).toBe(300);
  });
});

describe('a new session', () => {
  test('starts from a profile with its first prompt', async () => {
    const { page } = await open({ answers: { start: () => ({ session: SESSION }) } });
    await harness.send('state', home({ folders: [{ uri: 'file:///src', name: 'src' }] }));
    await show(card({ id: OTHER }));
    const box = page.getByRole('textbox', { name: 'First prompt' });
    expect(
      await box.evaluate((one: unknown) => one === (globalThis as never)['document']['activeElement']),
    ).toBe(true);
    expect(await page.getByRole('button', { name: 'Start' }).isDisabled()).toBe(true);
    await box.fill('Fix the parser.');
    await box.press('Enter');
    await expect.poll(() => box.inputValue()).toBe('');
    await page.getByRole('combobox').selectOption({ label: 'src' });
    await box.fill('Write a changelog.');
    await page.getByRole('button', { name: 'Start' }).click();
    await expect.poll(asked).toEqual([
      {
        name: 'start',
        params: {
          from: { kind: 'profile', host: 'local', name: 'claude' },
          prompt: 'Fix the parser.',
          files: [],
        },
      },
      {
        name: 'start',
        params: { from: { kind: 'folder', uri: 'file:///src' }, prompt: 'Write a changelog.', files: [] },
      },
    ]);
  });

  test('brings files along, also over a reload, unless the extension has lost them', async () => {
    const parts = new Map<string, Buffer>();
    let uploads: string[] = [];
    const { page } = await open({
      answers: {
        ready: () => ({ uploads }),
        upload: (params) => {
          const { upload, offset, total, bytes } = PartSchema.parse(params);
          const before = parts.get(upload) ?? Buffer.alloc(0);
          expect(before.length).toBe(offset);
          parts.set(upload, Buffer.concat([before, Buffer.from(bytes, 'base64')]));
          return { isWhole: parts.get(upload)?.length === total };
        },
        start: () => ({ session: SESSION }),
      },
    });
    await harness.send('state', home());
    const box = page.getByRole('textbox', { name: 'First prompt' });
    const list = page.getByRole('list', { name: 'Attachments' });
    const large = Buffer.alloc(1_500_000, 'large');
    await box.fill('Look at these.');
    await give('paste', 'shot.png', Buffer.from('pasted'));
    await give('drop', 'notes.md', Buffer.from('dropped'));
    const chooser = page.waitForEvent('filechooser');
    await page.getByRole('button', { name: 'Attach files' }).click();
    await (
      await chooser
    ).setFiles({ name: 'large.bin', mimeType: 'application/octet-stream', buffer: large });
    await expect.poll(() => list.getByRole('listitem').count()).toBe(3);
    await picture('files-dark');
    await page.getByRole('button', { name: 'Remove notes.md' }).click();
    await expect.poll(() => list.getByRole('listitem').count()).toBe(2);
    uploads = [...parts.keys()];
    await harness.reload();
    await harness.send('state', home());
    await list.getByText('shot.png').waitFor();
    await page.getByRole('button', { name: 'Start' }).click();
    await list.waitFor({ state: 'detached' });
    const dropped = asked().find((one) => (one as { name: string }).name === 'dropUpload');
    const started = StartedSchema.parse(asked().at(-1)).params;
    expect(started.prompt).toBe('Look at these.');
    expect(started.files.map(({ name }) => name).sort()).toEqual(['large.bin', 'shot.png']);
    for (const { upload, name, bytes } of started.files) {
      expect(dropped).not.toMatchObject({ params: { upload } });
      const expected = name === 'shot.png' ? Buffer.from('pasted') : large;
      expect([bytes, parts.get(upload)?.equals(expected)]).toEqual([expected.length, true]);
    }

    await give('paste', 'again.png', Buffer.from('again'));
    await list.getByText('again.png').waitFor();
    uploads = [];
    await harness.reload();
    await harness.send('state', home());
    await page.getByRole('alert').getByText('The files are gone').waitFor();
    expect(await list.count()).toBe(0);
  });

  test('has a first prompt that is not cut: what is too long is refused as a whole', async () => {
    const { page } = await open();
    await harness.send('state', home());
    const box = page.getByRole('textbox', { name: 'First prompt' });
    await box.fill('Short.');
    await box.fill('x'.repeat(256 * 1024 + 1));
    await page.getByRole('alert').getByText('at most 262144 characters').waitFor();
    expect(await box.inputValue()).toBe('Short.');
  });

  test('of a handler takes JSON, an empty one if nothing is written', async () => {
    const { page } = await open({ answers: { start: () => ({ session: null }) } });
    await harness.send('state', home({ profiles: [] }));
    await page.getByRole('textbox', { name: 'First input, as JSON' }).press('Enter');
    await expect
      .poll(asked)
      .toEqual([{ name: 'start', params: { from: { kind: 'example' }, prompt: '{}', files: [] } }]);
  });

  test('that cannot start says why, and keeps what was written', async () => {
    const { page } = await open({
      answers: {
        start: () => {
          throw new Error('The profile is gone: it was removed; deploy it again');
        },
      },
    });
    await harness.send('state', home());
    const box = page.getByRole('textbox', { name: 'First prompt' });
    await box.fill('Fix the parser.');
    await box.press('Enter');
    await page.getByRole('alert').getByText('The profile is gone').waitFor();
    expect(await box.inputValue()).toBe('Fix the parser.');
    await picture('failure-dark');
    await page.getByRole('button', { name: 'Dismiss' }).click();
    await page.getByRole('alert').waitFor({ state: 'detached' });
  });

  test('answers on the page, and its answer is announced', async () => {
    const { page } = await open({
      answers: { start: () => ({ session: SESSION }), words: () => words({ words: '{"count":1}' }) },
    });
    await harness.send('state', home({ profiles: [] }));
    await show();
    await page.getByRole('textbox').press('Enter');
    await expect.poll(() => asked().length).toBe(1);
    await show(card({ title: 'counter', need: 'waiting', reason: 'ended', prompt: '{}' }));
    await page.getByRole('status').getByText('{"count":1}').waitFor();
  });
});

describe('the first run', () => {
  const step = (title: string) => harness.page.locator('.first-run li').filter({ hasText: title });

  test('says what there is, with the example to start', async () => {
    const { page } = await open();
    await harness.send('state', home({ profiles: [], images: 'there', secrets: 0 }));
    await page.getByRole('heading', { name: 'Get started' }).waitFor();
    await expect.poll(() => page.locator('.first-run li.done').count()).toBe(2);
    await picture('first-run-dark');
    await step('A key').getByRole('button', { name: 'Set Secret…' }).click();
    await step('A first session').getByRole('button', { name: 'Open Folder…' }).click();
    expect(asked()).toEqual([
      { name: 'command', params: { command: 'setSecret' } },
      { name: 'openFolder', params: {} },
    ]);
  });

  test('without images offers to build them, and starts nothing', async () => {
    const { page } = await open({ theme: 'light' });
    await harness.send('state', home({ profiles: [], images: 'missing', secrets: 0 }));
    await page.getByRole('button', { name: 'Build Images' }).click();
    expect(await page.getByRole('button', { name: 'Start' }).isDisabled()).toBe(true);
    await picture('no-images-light');
    expect(asked()).toEqual([{ name: 'command', params: { command: 'buildImages' } }]);
    await harness.send('state', home({ profiles: [], images: 'checking' }));
    await step('Images').getByText('Looking for them').waitFor();
    await harness.send('state', home({ profiles: [], images: 'there' }));
    await expect.poll(() => page.getByRole('button', { name: 'Start' }).isDisabled()).toBe(false);
  });

  test('without Docker says so, and checks again', async () => {
    const { page } = await open({ theme: 'contrast' });
    const why = 'Docker does not answer: no such file.';
    await harness.send(
      'state',
      home({ profiles: [], hosts: [{ ...LOCAL_HOST, state: 'engine-down', why }] }),
    );
    await step('Docker').getByText(why).waitFor();
    // Said once.
    expect(await page.locator('.banner').count()).toBe(0);
    await picture('engine-down-contrast');
    await page.getByRole('button', { name: 'Check Again' }).click();
    expect(asked()).toEqual([{ name: 'command', params: { command: 'checkEngine' } }]);
  });

  test('without a supervisor connects', async () => {
    const { page } = await open();
    const why = 'No supervisor answers.';
    await harness.send('state', home({ profiles: [], hosts: [{ ...LOCAL_HOST, state: 'offline', why }] }));
    await step('Docker').getByText(why).waitFor();
    await page.getByRole('button', { name: 'Connect' }).click();
    expect(asked()).toEqual([{ name: 'connectHost', params: { host: 'local' } }]);
  });
});

test('before the sessions are known it loads, and with sessions a host that is down is a line above them', async () => {
  const { page } = await open();
  await page.getByText('Loading…').waitFor();
  await harness.send(
    'state',
    home({ isListed: false, hosts: [{ ...LOCAL_HOST, state: 'connecting' }], profiles: [] }),
  );
  await page.getByText('Loading the sessions…').waitFor();
  expect(await page.getByRole('heading', { name: 'Get started' }).count()).toBe(0);
  await picture('loading-dark');
  await harness.send('state', home({ hosts: [{ ...LOCAL_HOST, state: 'engine-down', why: null }] }));
  await show(card());
  await page.locator('.banner', { hasText: 'Docker is not running.' }).waitFor();
  expect(await page.getByRole('button', { name: 'Start' }).isDisabled()).toBe(true);
  await picture('engine-down-sessions-dark');
});

test('what an agent wrote stays text', async () => {
  let next = 0;
  const { page } = await open({
    height: 2000,
    answers: {
      words: () => {
        const text = (HOSTILE_TEXTS[next++ % HOSTILE_TEXTS.length] ?? '').slice(0, 300);
        return words({ words: text, asks: text });
      },
    },
  });
  await harness.send(
    'state',
    home({ profiles: [{ host: 'local', name: '"><img src=x>', input: 'prompt' }] }),
  );
  const hostile = cards(HOSTILE_TEXTS.length).map((one, n) => ({
    ...one,
    ...{ title: HOSTILE_TEXTS[n]?.slice(0, 100) ?? '', prompt: HOSTILE_TEXTS[n]?.slice(0, 300) ?? '' },
  }));
  await show(...hostile.slice(0, 200));
  await page.locator('.card').first().waitFor();
  await harness.drawn();
  expect(
    await page.evaluate(`[
      document.querySelectorAll('#page img, #page a, #page script, #page iframe, #page svg').length,
      /[\\u202a-\\u202e\\u2066-\\u2069\\u001b\\0]/.test(document.body.innerText),
    ]`),
  ).toEqual([0, false]);
});

test('the bundle is small', async () => {
  await open();
  const size = statSync(join(editorPaths().root, 'dist/webview/home-page.js')).size;
  expect(size).toBeLessThanOrEqual(MOST_BYTES);
});
