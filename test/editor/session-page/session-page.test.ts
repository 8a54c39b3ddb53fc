import { statSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import type { ConversationItem } from '../../../protocol/conversation.ts';
import { session } from '../../unit/extension/a-session.ts';
import { editorPaths } from '../harness/editor-paths.ts';
import {
  CONTENT,
  DETAILS,
  NEXT_TURN,
  PERMISSION,
  RICH,
  SNAPSHOT,
  TURN,
  item,
  message,
  page,
  permission,
  prompt,
  running,
  state,
} from './conversations.ts';
import { HOSTILE_TEXTS } from './hostile-texts.ts';
import { PageHarness } from './page-harness.ts';

let harness: PageHarness;

async function open(options: Partial<Parameters<typeof PageHarness.open>[0]> = {}): Promise<PageHarness> {
  harness = await PageHarness.open({ chromium: editorPaths().chromium, ...options });
  return harness;
}

async function picture(name: string): Promise<void> {
  await harness.drawn();
  await harness.page.screenshot({ path: join(editorPaths().screenshots, `session-page-${name}.png`) });
}

afterEach(() => harness.closeWithoutFaults());

/** What the page asks by itself. */
const UNASKED: ReadonlySet<string> = new Set(['ready', 'shown', 'turnLines', 'manifests', 'manifest']);
/** What the page asked the extension for, without the messages that keep it going. */
const asked = (): unknown[] => harness.requests.filter(({ name }) => !UNASKED.has(name));

describe('a conversation', () => {
  test.each(['dark', 'light', 'contrast'] as const)(
    'shows everything that an agent does, in %s',
    async (theme) => {
      const { page: view } = await open({
        theme,
        answers: { content: () => ({ text: DETAILS, isCut: false }) },
      });
      await harness.send('state', running());
      await harness.send(
        'begin',
        page([...RICH, prompt(20, 'Use fast-check.', { turnId: NEXT_TURN }), permission(21)]),
      );
      await view.getByRole('heading', { name: 'What I changed' }).waitFor();
      await view.getByText('1 of 3 done').waitFor();
      await view.getByText('Done · 1 min 14 s · 18,204 tokens · 0.12 USD').waitFor();
      await picture(`rich-${theme}`);
      await view.getByText('Edit parser.ts').click();
      await view.locator('.diff .added', { hasText: 'flush(rows);' }).waitFor();
      await picture(`unfolded-${theme}`);
      expect(asked()).toEqual([{ name: 'content', params: { sha256: CONTENT.sha256 } }]);
      expect(await view.locator('.markdown .hljs-keyword').allTextContents()).toEqual(['for', 'const', 'of']);
    },
  );

  test('code and output are copied with a button', async () => {
    const { page: view } = await open({ answers: { content: () => ({ text: DETAILS, isCut: false }) } });
    await harness.send('state', state());
    await harness.send('begin', page([...RICH, message(30, 'red\n', 'stdout')]));
    await view.getByRole('button', { name: 'Copy the code' }).click();
    await view.getByRole('button', { name: 'Copy: Output of the agent' }).click();
    await view.getByRole('button', { name: 'Copied' }).waitFor();
    expect(asked()).toEqual([
      {
        name: 'copy',
        params: { text: 'for (const line of lines) rows.push(parse(line));\nflush(rows);' },
      },
      { name: 'copy', params: { text: 'red\n' } },
    ]);
  });

  test('streams, and follows its end until a person scrolls up', async () => {
    const { page: view } = await open({ height: 400 });
    await harness.send('state', running());
    await harness.send('begin', page([prompt(1, 'Tell a long story.')]));
    let offset = 0;
    const add = async (batch: number): Promise<void> => {
      const text = `Line ${batch} of the story.\n\n`;
      await harness.send('changed', {
        batch,
        items: [],
        chunks: [{ turnId: TURN, message: 1, role: 'agent', offset, text }],
      });
      offset += text.length;
      await expect.poll(() => harness.requests.at(-1)).toEqual({ name: 'shown', params: { batch } });
    };
    for (let batch = 1; batch <= 30; batch += 1) await add(batch);
    const log = view.getByRole('log');
    const below = (): Promise<number> =>
      log.evaluate((box: { scrollHeight: number; scrollTop: number; clientHeight: number }) =>
        Math.round(box.scrollHeight - box.scrollTop - box.clientHeight),
      );
    await expect.poll(below).toBeLessThan(5);
    await picture('streaming');
    await log.evaluate((box: { scrollTop: number }) => {
      box.scrollTop = 100;
    });
    await harness.drawn();
    for (let batch = 31; batch <= 33; batch += 1) await add(batch);
    expect(await log.evaluate((box: { scrollTop: number }) => box.scrollTop)).toBe(100);
    await view.getByRole('button', { name: 'Latest' }).click();
    await expect.poll(below).toBeLessThan(5);
  });

  test('says at the end of a turn what the turn changed on disk', async () => {
    const known = { files: 3, added: 1204, removed: 4 };
    let lines: typeof known | null = null;
    const { page: view } = await open({ answers: { turnLines: () => ({ lines }) } });
    await harness.send('state', state());
    const ended = { status: 'succeeded', exitCode: null, error: null, turnMs: 820 } as const;
    await harness.send('begin', page([prompt(1, 'Go.'), item(2, 'end', ended)]));
    const counted = (): unknown[] =>
      harness.requests.flatMap(({ name, params }) => (name === 'turnLines' ? [params] : []));
    await expect.poll(counted).toEqual([{ turnId: TURN }]);
    await view.locator('.end .how', { hasText: /Done · 820 ms$/ }).waitFor();
    lines = known;
    await harness.send('begin', page([prompt(1, 'Go.'), item(3, 'end', { ...ended, turnId: NEXT_TURN })]));
    await view.locator('.end .how', { hasText: 'Done · 820 ms · 3 files +1,204 −4' }).waitFor();
    // Known once is known.
    await harness.send('begin', page([prompt(1, 'Go.'), item(4, 'end', { ...ended, turnId: NEXT_TURN })]));
    await harness.drawn();
    expect(counted()).toEqual([{ turnId: TURN }, { turnId: NEXT_TURN }]);
  });

  test('of a program and of a handler looks right as well', async () => {
    const { page: view } = await open();
    await harness.send(
      'state',
      state({ session: session({ name: 'notes', profile: 'notes' }), input: 'json' }),
    );
    await harness.send(
      'begin',
      page([
        prompt(1, '{"city": "Lima"}'),
        message(2, 'reading…\n\u001b[32mdone\u001b[0m\n', 'stdout'),
        message(3, 'warning: 1 file skipped\n', 'stderr'),
        item(4, 'end', {
          status: 'succeeded',
          exitCode: 0,
          error: null,
          turnMs: 820,
          text: '{"rows":[1,2]}',
        }),
        prompt(5, '{}', { turnId: NEXT_TURN }),
        item(6, 'end', {
          turnId: NEXT_TURN,
          status: 'failed',
          exitCode: 1,
          turnMs: 90,
          error: { code: 'turn_failed', message: 'KeyError: city', traceback: 'Traceback …\n  line 3' },
        }),
      ]),
    );
    await view.getByText('reading…').waitFor();
    expect(await view.locator('.output.stdout pre').innerText()).toBe('reading…\ndone\n');
    expect(await view.locator('.output.result pre').innerText()).toContain('"rows": [');
    await view.locator('.error').getByText('KeyError: city').waitFor();
    await picture('programs');
  });

  test('what can be done about a turn, a denial and a snapshot is asked of the extension', async () => {
    const { page: view } = await open();
    await harness.send('state', state());
    await harness.send('begin', page(RICH));
    await view.getByRole('button', { name: 'See Changes' }).click();
    await view.getByRole('button', { name: 'Restore to Before…' }).click();
    await view.getByRole('button', { name: 'Fork from Before…' }).click();
    await view.getByRole('button', { name: 'Allow registry.npmjs.org…' }).click();
    await view.getByRole('link', { name: 'parser.ts' }).or(view.locator('[data-link]')).first().click();
    await view.getByRole('button', { name: 'parser.ts:30' }).click();
    await expect.poll(asked).toEqual([
      { name: 'changesOfTurn', params: { turnId: TURN } },
      { name: 'snapshotBeforeTurn', params: { turnId: TURN } },
      { name: 'forkBeforeTurn', params: { turnId: TURN } },
      { name: 'allowHost', params: { host: 'registry.npmjs.org' } },
      { name: 'openFile', params: { path: '/workspace/src/parser.ts', line: 42 } },
      { name: 'openFile', params: { path: '/workspace/src/parser.ts', line: 30 } },
    ]);
  });

  test('a permission is answered in place, and an error says what to do', async () => {
    const { page: view } = await open({
      answers: {
        answer: () => {
          throw new Error('The permission was not answered: somebody else was faster');
        },
      },
    });
    await harness.send('state', running());
    await harness.send('begin', page([prompt(1, 'go'), permission(2)]));
    await view.getByRole('status').getByText('Waiting for you').waitFor();
    await view.getByRole('button', { name: 'Always Allow' }).click();
    await view.getByRole('alert').getByText('somebody else was faster').waitFor();
    expect(asked()).toEqual([{ name: 'answer', params: { permissionId: PERMISSION, answer: 'always' } }]);
    const answered = {
      ...permission(2),
      answer: { id: 'no', name: 'Reject', kind: 'reject_once' },
      by: { kind: 'client', name: 'cli' },
    } as ConversationItem;
    await harness.send('changed', { batch: 1, items: [answered], chunks: [] });
    await view.getByText('Rejected: npm install').waitFor();
    await view.getByText('by cli').waitFor();
  });

  test('100,000 items scroll in a bounded document', async () => {
    const total = 100_000;
    const items = (from: number, to: number): ConversationItem[] =>
      Array.from({ length: to - from }, (_, n) => message(from + n + 1, `Message **${from + n + 1}**`));
    const { page: view } = await open({
      answers: {
        read: (params) => {
          const { before } = params as { before?: string };
          const end = Number((before ?? `${total + 1}.0`).split('.')[0]) - 1;
          const start = Math.max(0, end - 100);
          return page(items(start, end), { before: start === 0 ? null : `${start + 1}.${start + 1}`, total });
        },
      },
    });
    await harness.send('state', state());
    await harness.send(
      'begin',
      page(items(total - 100, total), { before: `${total - 99}.${total - 99}`, total }),
    );
    await view.getByText(String(total)).waitFor();
    const log = view.getByRole('log');
    for (let step = 0; step < 25; step += 1) {
      const reads = asked().length;
      await log.evaluate((box: { scrollTop: number }) => {
        box.scrollTop = 0;
      });
      await expect.poll(() => asked().length).toBeGreaterThan(reads);
      await harness.drawn();
    }
    expect(await view.locator('[data-key]').count()).toBeLessThanOrEqual(1500);
    await view.getByRole('button', { name: 'Latest' }).click();
    await view.getByText(String(total)).waitFor();
  });
});

describe('the prompt', () => {
  test('is sent with Enter, keeps its lines, and can be recalled', async () => {
    const { page: view } = await open();
    await harness.send('state', state());
    await harness.send('begin', page([prompt(1, 'the first one')]));
    const box = view.getByRole('textbox', { name: 'Prompt for the agent' });
    await box.press('ArrowUp');
    expect(await box.inputValue()).toBe('the first one');
    await box.press('ArrowDown');
    await box.pressSequentially('one');
    await box.press('Shift+Enter');
    await box.pressSequentially('two');
    await box.press('Enter');
    await expect.poll(() => box.inputValue()).toBe('');
    expect(asked()).toMatchObject([{ name: 'prompt', params: { text: 'one\ntwo' } }]);
  });

  test('whose answer was lost is the same prompt when it is sent again after a reload, unless it was edited', async () => {
    let isLost = true;
    const { page: view } = await open({
      answers: {
        prompt: () => {
          if (isLost) throw new Error('The connection was lost');
        },
      },
    });
    const box = view.getByRole('textbox', { name: 'Prompt for the agent' });
    const opIds = (): unknown[] =>
      harness.requests.flatMap(({ name, params }) =>
        name === 'prompt' ? [(params as { opId: string }).opId] : [],
      );
    const show = async (): Promise<void> => {
      await harness.send('state', state());
      await harness.send('begin', page([]));
    };
    await show();
    await box.fill('again');
    await box.press('Enter');
    await view.getByRole('alert').getByText('The connection was lost').waitFor();
    await harness.reload();
    await show();
    expect(await box.inputValue()).toBe('again');
    isLost = false;
    await box.press('Enter');
    await expect.poll(() => box.inputValue()).toBe('');
    // The same text later is another prompt.
    await box.fill('again');
    await box.press('Enter');
    await expect.poll(() => box.inputValue()).toBe('');
    const [first, second, third, ...others] = opIds();
    expect(others).toEqual([]);
    expect(second).toBe(first);
    expect(third).not.toBe(first);
  });

  test('a prompt that is refused stays; one that waits can be edited in place and taken back', async () => {
    let fails = true;
    const { page: view } = await open({
      answers: {
        prompt: () => {
          if (fails) throw new Error('The turn was not started: the disk is full');
        },
        edit: () => {
          if (fails) throw new Error('The prompt was not changed: the turn has begun');
        },
      },
    });
    await harness.send('state', running({ queuedTurns: 2 }));
    const waiting = (id: number, text: string, turnId: string): ConversationItem => ({
      ...prompt(id, text, { state: 'queued', turnId }),
      at: 0,
    });
    const queued = [waiting(5, 'second', NEXT_TURN), waiting(6, 'third', 'turn-cccccccccccccccc')];
    await harness.send('begin', page([prompt(1, 'first')], { queued }));
    const box = view.getByRole('textbox');
    await box.fill('more');
    await box.press('Enter');
    await view.getByRole('alert').getByText('the disk is full').waitFor();
    expect(await box.inputValue()).toBe('more');
    fails = false;
    await picture('queue');
    await view.getByRole('button', { name: 'Edit this prompt' }).first().click();
    await expect.poll(() => box.inputValue()).toBe('second');
    await box.press('Escape');
    await expect.poll(() => box.inputValue()).toBe('more');
    await view.getByRole('button', { name: 'Edit this prompt' }).first().click();
    await expect.poll(() => box.inputValue()).toBe('second');
    await picture('queue-edited');
    await box.fill('second, better');
    await view.getByRole('button', { name: 'Save this prompt' }).click();
    await expect.poll(() => box.inputValue()).toBe('more');
    await view.getByRole('button', { name: 'Edit this prompt' }).first().click();
    await expect.poll(() => box.inputValue()).toBe('second');
    // Its turn begins while it is in the box.
    await harness.send('begin', page([prompt(1, 'first')], { queued: queued.slice(1) }));
    await view.getByText('second').first().waitFor({ state: 'detached' });
    fails = true;
    await box.press('Enter');
    await view.getByRole('alert').getByText('the turn has begun').waitFor();
    await expect.poll(() => box.inputValue()).toBe('second\nmore');
    await view.getByRole('button', { name: 'Take this prompt back' }).last().click();
    await view.getByRole('button', { name: 'Stop the running turn' }).click();
    await expect
      .poll(() => asked().slice(1))
      .toEqual([
        { name: 'edit', params: { turnId: NEXT_TURN, text: 'second, better', attachments: [] } },
        { name: 'edit', params: { turnId: NEXT_TURN, text: 'second', attachments: [] } },
        { name: 'takeBack', params: { turnId: 'turn-cccccccccccccccc' } },
        { name: 'stop', params: {} },
      ]);
  });
});

describe('a mention of a file', () => {
  const FILES = ['src/parser.ts', 'src/parser.test.ts', 'docs/a b.md', 'bad\u202ename'];

  test.each([
    ['dark', 900],
    ['light', 900],
    ['contrast', 900],
    ['dark', 300],
  ] as const)('is completed with the keyboard (%s, %d pixels)', async (theme, width) => {
    const { page: view } = await open({
      theme,
      width,
      height: 500,
      answers: { findFiles: () => ({ paths: FILES }) },
    });
    await harness.send('state', state());
    await harness.send('begin', page([prompt(1, 'go')]));
    const box = view.getByRole('textbox');
    await box.pressSequentially('Fix @pars');
    const list = view.getByRole('listbox', { name: 'Files of the workspace' });
    await expect.poll(() => list.getByRole('option').count()).toBe(3);
    await box.press('ArrowDown');
    await box.press('ArrowDown');
    const active = await box.getAttribute('aria-activedescendant');
    expect(await list.getByRole('option', { selected: true }).getAttribute('id')).toBe(active);
    await picture(`mention-${theme}-${width}`);
    expect(await harness.faults()).toEqual([]);
    await box.press('Enter');
    expect(await box.inputValue()).toBe('Fix @"docs/a b.md" ');
    await box.pressSequentially('@x');
    await list.waitFor();
    await box.press('Escape');
    await list.waitFor({ state: 'detached' });
    await box.press('Enter');
    await expect
      .poll(() => asked().at(-1))
      .toMatchObject({
        name: 'prompt',
        params: { text: 'Fix @"docs/a b.md" @x' },
      });
  });

  test('is completed with the mouse, and opens the file in the conversation', async () => {
    const { page: view } = await open({ answers: { findFiles: () => ({ paths: FILES }) } });
    await harness.send('state', state());
    await harness.send('begin', page([prompt(1, 'Fix @src/a.ts, please')]));
    await view.getByRole('button', { name: '@src/a.ts' }).click();
    await view.getByRole('textbox').pressSequentially('@');
    await view.getByRole('option', { name: 'parser.test.ts' }).click();
    expect(await view.getByRole('textbox').inputValue()).toBe('@src/parser.test.ts ');
    expect(asked()).toEqual([
      { name: 'openFile', params: { path: 'src/a.ts', line: null } },
      { name: 'findFiles', params: { query: '' } },
    ]);
  });
});

describe('the manifest and the policy', () => {
  const RECORD = {
    rules: [
      { host: 'registry.npmjs.org', effect: 'allow', from: 'file', isUnread: false },
      { host: '*.example.org', effect: 'deny', from: 'session', isUnread: false },
    ],
    credentials: [{ name: 'anthropic', host: 'api.anthropic.com' }],
    signature: { keyId: 'f'.repeat(64), why: null },
    madeAt: new Date(2026, 0, 1).toISOString(),
    facts: [
      { label: 'Turns', value: '4 (3 succeeded, 1 failed)' },
      { label: 'History', value: `40 events · ${'a'.repeat(16)}` },
    ],
    hosts: [{ host: 'registry.npmjs.org', port: 443, allowed: 1204, denied: 3, failed: 0 }],
    snapshots: { snapshots: 6, bytes: 1_363_149, uniqueBytes: null },
  };

  const KEPT = [
    { id: 'mnf-1', madeAt: '2026-01-02T10:00:00.000Z', reason: 'handoff' },
    { id: 'mnf-2', madeAt: '2026-01-01T10:00:00.000Z', reason: 'delete' },
  ];
  const EARLIER = {
    ...{
      signature: RECORD.signature,
      madeAt: KEPT[0]?.madeAt,
      facts: RECORD.facts.slice(1),
      credentials: [],
    },
    hosts: [{ host: 'registry.npmjs.org', port: 443, allowed: 1, denied: 0, failed: 0 }],
  };

  test.each([
    ['dark', 900],
    ['light', 900],
    ['contrast', 900],
    ['dark', 300],
  ] as const)('say what the session may do and did (%s, %d pixels)', async (theme, width) => {
    const { page: view } = await open({
      theme,
      width,
      answers: { record: () => RECORD, manifests: () => ({ manifests: KEPT }), manifest: () => EARLIER },
    });
    const origin = { kind: 'fork' as const, snapshotId: SNAPSHOT };
    const forked = { lineage: 'ses-bbbbbbbbbbbbbbbb', origin, author: 'ada <b>' };
    await harness.send(
      'state',
      state({ session: session({ lastSeq: 40, workspaceBytes: 2048, ...forked }) }),
    );
    await harness.send('begin', page(RICH));
    await view.getByRole('tab', { name: 'Manifest' }).click();
    await view.getByRole('row', { name: 'registry.npmjs.org yes holdfast.yaml' }).waitFor();
    await view.getByRole('row', { name: '*.example.org no this session' }).waitFor();
    await view.getByRole('row', { name: 'registry.npmjs.org:443 1,204 3 0' }).waitFor();
    await view.getByText('Signed with the key of this home, ffffffffffffffff').waitFor();
    const differs = view.getByRole('region', { name: 'Differences from an earlier manifest' });
    await differs
      .getByRole('row', {
        name: 'registry.npmjs.org:443 1 allowed, 0 denied, 0 failed 1204 allowed, 3 denied, 0 failed',
      })
      .waitFor();
    await view.getByText(' by ada <b>').waitFor();
    await view.getByText(`as a fork of snapshot ${SNAPSHOT}`).waitFor();
    await view.getByText('ses-bbbbbbbbbbbbbbbb').waitFor();
    const kept = view.getByRole('table', { name: 'Layers of the session' });
    await kept.getByRole('row', { name: 'workspace 2 KB the session is deleted' }).waitFor();
    await kept.getByRole('row', { name: '6 snapshots 1.3 MB thinned out with age' }).waitFor();
    await kept.getByRole('row', { name: 'history 40 events the session is deleted' }).waitFor();
    await picture(`manifest-${theme}-${width}`);
    await kept.scrollIntoViewIfNeeded();
    await picture(`manifest-kept-${theme}-${width}`);
    await differs.getByRole('combobox').selectOption('mnf-2');
    await expect.poll(() => harness.requests.at(-1)).toEqual({ name: 'manifest', params: { id: 'mnf-2' } });
    expect(await view.evaluate('document.documentElement.scrollWidth')).toBe(width);
    await view.getByRole('button', { name: 'Copy Signed Manifest' }).click();
    await view.getByRole('button', { name: 'Save Manifest…' }).click();
    // The session goes on, and the manifest says what was.
    await harness.send('state', state({ session: session({ lastSeq: 41 }) }));
    await view.getByRole('button', { name: 'Make a New Manifest' }).click();
    await expect
      .poll(() => asked().map((one) => (one as { name: string }).name))
      .toEqual(['record', 'copyManifest', 'command', 'record']);
    await view.getByRole('button', { name: 'Make a New Manifest' }).waitFor({ state: 'detached' });
  });

  test('say so where the signature is not valid, and where they cannot be read', async () => {
    let fails = true;
    const { page: view } = await open({
      answers: {
        record: () => {
          if (fails) throw new Error('The manifest was not made: the history is damaged');
          return { ...RECORD, rules: [], credentials: [], signature: { keyId: 'f', why: 'it was altered' } };
        },
      },
    });
    await harness.send('state', state());
    await harness.send('begin', page(RICH));
    await view.getByRole('tab', { name: 'Manifest' }).click();
    await view.getByText('the history is damaged').waitFor();
    fails = false;
    await view.getByRole('button', { name: 'Try Again' }).click();
    await view.getByText('The signature is not valid: it was altered').waitFor();
    await view.getByText('It reaches no host').waitFor();
  });
});

describe('a state that keeps a person from going on says what to do', () => {
  test.each([
    ['connecting', state({ host: 'connecting' }), 'Connecting to the supervisor'],
    ['offline', state({ host: 'offline', why: 'No supervisor runs.' }), 'No supervisor runs.'],
    ['engine-down', state({ host: 'engine-down' }), 'Docker is not running.'],
    ['deleted', state({ session: null, isDeleted: true }), 'This session was deleted.'],
    ['expired', state({ session: session({ status: 'expired' }) }), 'This session has expired.'],
    [
      'hydrating',
      state({ session: session({ hydration: { snapshotId: SNAPSHOT, failed: null } }) }),
      'Copying the files of the snapshot',
    ],
  ])('%s', async (name, value, text) => {
    const { page: view } = await open({ height: 500 });
    await harness.send('state', value);
    await harness.send('begin', page([]));
    await view.getByRole('status').getByText(text).waitFor();
    await view.getByText('Nothing has happened yet').waitFor();
    await picture(name);
  });

  test.each([
    ['dark', 900],
    ['light', 900],
    ['contrast', 900],
    ['dark', 300],
  ] as const)('the mode and the model are chosen with the keyboard (%s, %d pixels)', async (theme, width) => {
    let isRefused = false;
    const choose = (): object => {
      if (isRefused) throw new Error('The agent does not offer this.');
      return {};
    };
    const { page: view } = await open({ theme, width, height: 500, answers: { choose } });
    const options = [
      { value: 'default', name: 'Ask before each edit that the agent wants to make' },
      { value: 'plan', name: 'Plan' },
    ];
    const models = [
      { value: 'small', name: 'Small' },
      { value: 'large', name: '<img src=x onerror=alert(1)>' },
    ];
    await harness.send('state', running());
    await harness.send('begin', page([prompt(1, 'go')]));
    await harness.send('pickers', {
      pickers: [
        { what: 'mode', value: 'default', options },
        { what: 'model', value: 'large', options: models },
      ],
    });
    const mode = view.getByRole('combobox', { name: "The agent's mode", exact: true });
    const model = view.getByRole('combobox', { name: "The agent's model", exact: true });
    await picture(`pickers-${theme}-${width}`);
    expect(await view.evaluate('document.documentElement.scrollWidth')).toBe(width);
    expect(await model.inputValue()).toBe('large');
    await mode.press('ArrowDown');
    await expect.poll(() => asked()).toEqual([{ name: 'choose', params: { what: 'mode', value: 'plan' } }]);
    expect(await mode.inputValue()).toBe('plan');
    isRefused = true;
    await model.selectOption('small');
    await view.getByText('The agent does not offer this.').waitFor();
    await expect.poll(() => model.inputValue()).toBe('large');
    await harness.send('state', state({ host: 'offline', why: 'Nobody answers.' }));
    await expect.poll(() => mode.isDisabled()).toBe(true);
    expect(await model.isDisabled()).toBe(true);
  });

  test('a page of 300 pixels has no horizontal scroll bar', async () => {
    const { page: view } = await open({ width: 300 });
    await harness.send('state', running({ queuedTurns: 1 }));
    await harness.send('begin', page([...RICH, permission(21)]));
    await view.getByRole('button', { name: 'Reject' }).waitFor();
    await picture('narrow');
    expect(await view.evaluate('document.documentElement.scrollWidth')).toBe(300);
    expect(
      await view
        .locator('.timeline')
        .evaluate((box: { scrollWidth: number; clientWidth: number }) => box.scrollWidth - box.clientWidth),
    ).toBe(0);
  });
});

test('nothing that an agent writes acts', async () => {
  const { page: view } = await open({
    answers: { content: () => ({ text: HOSTILE_TEXTS.join('\n'), isCut: false }) },
  });
  await harness.send('state', state({ session: session({ name: HOSTILE_TEXTS[1] ?? '', profile: 'p' }) }));
  const items = HOSTILE_TEXTS.flatMap((text, n): ConversationItem[] => {
    const id = 10 * n + 10;
    return [
      prompt(id, text),
      message(id + 1, text),
      message(id + 2, text, 'thought'),
      message(id + 3, text, 'stdout'),
      item(id + 4, 'tool', {
        ...{ call: text, kind: 'edit', status: 'completed', title: text },
        locations: [{ path: text, line: 1 }],
        contents: [CONTENT],
      }),
      { ...permission(id + 5), title: text } as ConversationItem,
      item(id + 6, 'plan', { text: JSON.stringify([{ content: text, status: 'pending' }]) }),
      item(id + 7, 'notice', { code: 'x', message: text }),
      item(id + 8, 'end', {
        status: 'failed',
        exitCode: 1,
        turnMs: 1,
        error: { code: 'x', message: text, traceback: text },
      }),
    ];
  });
  await harness.send('begin', page(items));
  await view.getByText('harmless').first().waitFor();
  for (const summary of await view.locator('.tool .unfold').all()) await summary.press('Enter');
  await view.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })");
  await harness.drawn();
  const found = await view.evaluate(`[
    globalThis.owned ?? null,
    document.querySelectorAll('#page script, #page img, #page svg, #page iframe, #page style, #page form, #page link, #page base, #page meta, #page input').length,
    [...document.querySelectorAll('#page *')].flatMap((one) => [...one.attributes]).filter(({ name }) => name.startsWith('on')).length,
    [...document.querySelectorAll('#page a')].filter((one) => one.getAttribute('href') !== '#').length,
    document.getElementById('page').dataset.session,
    /[\\u202a-\\u202e\\u2066-\\u2069\\u001b\\0]/.test(document.body.innerText),
  ]`);
  expect(found).toEqual([null, 0, 0, 0, 'ses-aaaaaaaaaaaaaaaa', false]);
  // What is left of links goes to the extension, and only as a web address or a path.
  for (const link of await view.locator('#page .markdown a').all()) await link.dispatchEvent('click');
  await harness.drawn();
  const opened = harness.requests.filter(({ name }) => name === 'openLink' || name === 'openFile');
  for (const { name, params } of opened) {
    const { url = '', path = '' } = params as { url?: string; path?: string };
    expect(name === 'openLink' ? /^https?:\/\//.test(url) : !/^[a-z]+:|^\/\//i.test(path)).toBe(true);
  }
});

test('a part of the page that cannot be loaded says so, and is loaded again', async () => {
  const { page: view } = await open({
    answers: {
      snapshots: () => ({
        snapshots: [],
        next: null,
        graph: { origin: null, restores: [], forks: [] },
        usage: { snapshots: 0, bytes: 0, uniqueBytes: null },
      }),
    },
  });
  await view.route('**/session-page-late.js', (route) => route.abort(), { times: 1 });
  await harness.send('state', state());
  await harness.send('begin', page(RICH));
  await view.getByRole('tab', { name: 'Snapshots' }).click();
  await view.getByText('The rest of the page could not be loaded.').waitFor();
  await view.getByRole('button', { name: 'Try Again' }).click();
  await view.getByRole('heading', { name: 'No snapshots yet' }).waitFor();
});

test('the bundle is small, and its late part is small', async () => {
  await open();
  const sizeOf = (name: string): number => statSync(join(editorPaths().root, 'dist/webview', name)).size;
  expect(sizeOf('session-page.js')).toBeLessThanOrEqual(350 * 1024);
  // Where sessions and snapshots come from is 1 KB of it.
  expect(sizeOf('session-page-late.js')).toBeLessThanOrEqual(31 * 1024);
});
