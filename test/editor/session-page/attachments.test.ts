import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import type { Attachment } from '../../../protocol/attachments.ts';
import { png } from '../../fixtures/images.ts';
import { NEXT_TURN, page, prompt, running, state } from './conversations.ts';
import { giveFile } from './given-files.ts';
import { harness, open, picture as shot } from './opened-page.ts';

const PICTURE = png(300, 200);
const SHA = 'ab'.repeat(32);
const picture: Attachment = {
  kind: 'image',
  name: 'shot.png',
  content: { sha256: SHA, bytes: PICTURE.length, mediaType: 'image/png' },
};
const notes: Attachment = {
  kind: 'file',
  name: 'notes.md',
  content: { sha256: 'cd'.repeat(32), bytes: 12, mediaType: 'text/plain; charset=utf-8' },
};
const link: Attachment = { kind: 'link', path: '/workspace/src/a.ts' };
const drawn = {
  picture: () => ({ mediaType: 'image/png', width: 300, height: 200, bytes: PICTURE.toString('base64') }),
};

afterEach(() => harness.closeWithoutFaults());

const UploadSchema = z.object({
  upload: z.string(),
  offset: z.number(),
  total: z.number(),
  bytes: z.string(),
});
/** An extension that keeps what is uploaded. `gate`: what its first answer waits for. */
function givenUploads(gate: Promise<unknown> = Promise.resolve()) {
  const uploads = new Map<string, Buffer>();
  let nth = 0;
  const upload = async (params: unknown) => {
    const { upload: id, offset, total, bytes } = UploadSchema.parse(params);
    nth += 1;
    if (nth === 1) await gate;
    const parts = Buffer.concat([uploads.get(id) ?? Buffer.alloc(0), Buffer.from(bytes, 'base64')]);
    expect(parts.length - Buffer.from(bytes, 'base64').length).toBe(offset);
    uploads.set(id, parts);
    if (parts.length < total) return { content: null, kind: null };
    const isPicture = parts.subarray(1, 4).toString() === 'PNG';
    const content = {
      sha256: isPicture ? SHA : 'cd'.repeat(32),
      bytes: total,
      mediaType: isPicture ? 'image/png' : 'text/plain',
    };
    return { content, kind: isPicture ? ('image' as const) : ('file' as const) };
  };
  return { answers: { ...drawn, upload }, uploads };
}
function folder(files: Readonly<Record<string, Buffer>>): string[] {
  const path = mkdtempSync(join(tmpdir(), 'holdfast-attached-'));
  onTestFinished(() => rmSync(path, { recursive: true }));
  return Object.entries(files).map(([name, bytes]) => {
    writeFileSync(join(path, name), bytes);
    return join(path, name);
  });
}
const give = (how: 'paste' | 'drop', name: string, bytes: Buffer) => giveFile(harness.page, how, name, bytes);
const prompts = () => harness.requests.filter(({ name }) => name === 'prompt' || name === 'edit');
/** The picture has pixels, and its shape. */
const isDrawn = () =>
  harness.page.evaluate(`(() => {
    const canvas = document.querySelector('canvas');
    const pixel = canvas?.getContext('2d')?.getImageData(4, 4, 1, 1).data;
    return pixel?.[3] === 255 && canvas?.width !== canvas?.height;
  })()`);

test.each([
  ['dark', 900],
  ['light', 900],
  ['contrast', 900],
  ['dark', 300],
] as const)('what a prompt brings along is shown, inert (%s, %d pixels)', async (theme, width) => {
  const { page: view } = await open({
    ...{ theme, width },
    answers: { ...drawn, content: () => ({ text: '# Notes', isCut: false }) },
  });
  await harness.send('state', running());
  const waiting = prompt(5, 'Then this', {
    state: 'queued',
    attachments: [picture, link],
    turnId: NEXT_TURN,
  });
  const asked = prompt(1, 'Look', { attachments: [picture, notes, link] });
  await harness.send('begin', { ...page([asked]), queued: [waiting] });
  const list = view.getByRole('log').getByRole('list', { name: 'Attachments' });
  await expect.poll(isDrawn).toBe(true);
  await view.getByText('Then this · shot.png · /workspace/src/a.ts').waitFor();
  await list.getByRole('button', { name: 'notes.md' }).press('Enter');
  await view.getByText('# Notes').waitFor();
  await list.getByRole('button', { name: 'shot.png' }).press('Enter');
  await expect.poll(() => view.locator('canvas').first().getAttribute('width')).toBe('300');
  await list.getByRole('button', { name: '/workspace/src/a.ts' }).click();
  expect(harness.requests.at(-1)).toEqual({
    name: 'openFile',
    params: { path: '/workspace/src/a.ts', line: null },
  });
  await shot(`attachments-${theme}-${width}`);
  const wide = await view.evaluate('document.documentElement.scrollWidth - innerWidth');
  expect(wide).toBeLessThanOrEqual(0);
});

test('files are pasted, dropped and chosen; removed with the keyboard; kept by a reload; sent once', async () => {
  const { answers, uploads } = givenUploads();
  const { page: view } = await open({ answers });
  await harness.send('state', state());
  await harness.send('begin', page([]));
  await give('paste', 'image.png', PICTURE);
  await give('drop', 'notes.md', Buffer.from('# Notes'));
  const chooser = view.waitForEvent('filechooser');
  await view.getByRole('button', { name: 'Attach files' }).click();
  const large = Buffer.alloc(2_500_000, 7);
  await (await chooser).setFiles(folder({ 'large.bin': large, 'odd\u202e.txt': Buffer.from('x') }));
  const list = view.getByRole('list', { name: 'Attachments' });
  await expect.poll(() => list.getByRole('listitem').count()).toBe(4);
  expect([...uploads.values()].map((bytes) => bytes.length).toSorted((a, b) => a - b)).toEqual(
    [1, 7, PICTURE.length, large.length].toSorted((a, b) => a - b),
  );
  await view.getByRole('button', { name: 'Remove large.bin' }).press('Enter');
  await view.getByRole('button', { name: 'Remove odd_.txt' }).press('Space');
  await view.getByRole('textbox').fill('Look');
  await shot('attach');
  await harness.drawn();
  await harness.reload();
  await harness.send('state', state());
  await harness.send('begin', page([]));
  await expect.poll(() => list.getByRole('listitem').count()).toBe(2);
  await view.getByRole('textbox').press('Enter');
  await expect.poll(() => prompts().length).toBe(1);
  expect(prompts()[0]?.params).toMatchObject({
    text: 'Look',
    attachments: [
      { kind: 'image', name: 'image.png', content: { sha256: SHA } },
      { kind: 'file', name: 'notes.md' },
    ],
  });
  await list.waitFor({ state: 'detached' });
});

test('what is chosen while a paste is still read drops neither, and nothing is sent before both are there', async () => {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  const { page: view } = await open({ answers: givenUploads(promise).answers });
  await harness.send('state', state());
  await harness.send('begin', page([]));
  await view.getByRole('textbox').fill('Look');
  await give('paste', 'first.png', PICTURE);
  await expect.poll(() => harness.requests.some(({ name }) => name === 'upload')).toBe(true);
  const chooser = view.waitForEvent('filechooser');
  await view.getByRole('button', { name: 'Attach files' }).click();
  await (await chooser).setFiles(folder({ 'second.txt': Buffer.from('two') }));
  const list = view.getByRole('list', { name: 'Attachments' });
  await list.getByText('second.txt').waitFor();
  await view.getByText('Attaching…').waitFor();
  await view.getByRole('textbox').press('Enter');
  expect(prompts()).toEqual([]);
  resolve(undefined);
  await expect.poll(() => list.getByRole('listitem').count()).toBe(2);
  await view.getByText('Attaching…').waitFor({ state: 'detached' });
  await view.getByRole('textbox').press('Enter');
  await expect.poll(() => prompts().length).toBe(1);
  expect(prompts()[0]?.params).toMatchObject({
    attachments: [{ name: 'second.txt' }, { name: 'first.png' }],
  });
});

test('a prompt has at most 20 files; the page says what was left out, and the text survives', async () => {
  const { page: view } = await open({ answers: givenUploads().answers });
  await harness.send('state', state());
  await harness.send('begin', page([]));
  await view.getByRole('textbox').fill('An hour of typing');
  const chooser = view.waitForEvent('filechooser');
  await view.getByRole('button', { name: 'Attach files' }).click();
  const names = Array.from({ length: 19 }, (_, n) => [`${n}.txt`, Buffer.from('x')] as const);
  await (await chooser).setFiles(folder(Object.fromEntries(names)));
  const list = view.getByRole('list', { name: 'Attachments' });
  await expect.poll(() => list.getByRole('listitem').count()).toBe(19);
  await give('paste', '19.txt', Buffer.from('x'));
  await list.getByText('19.txt').waitFor();
  expect(await view.getByRole('alert').count()).toBe(0);
  await give('paste', '20.txt', Buffer.from('x'));
  await view.getByText('A prompt can have at most 20 files.').waitFor();
  await view.getByRole('tab', { name: 'Snapshots' }).click();
  await harness.drawn();
  await harness.reload();
  await harness.send('state', state());
  await view.getByRole('tab', { name: 'Conversation' }).click();
  expect(await view.getByRole('textbox').inputValue()).toBe('An hour of typing');
  await expect.poll(() => list.getByRole('listitem').count()).toBe(20);
  expect(await list.getByText('20.txt').count()).toBe(0);
});

test('an upload continues while another part of the page is shown, and the box is as high as its text', async () => {
  const { promise, resolve } = Promise.withResolvers<undefined>();
  const { page: view } = await open({ answers: givenUploads(promise).answers });
  await harness.send('state', state());
  await harness.send('begin', page([]));
  const box = view.getByRole('textbox');
  await box.fill('one\ntwo\nthree');
  const height = async () => (await box.boundingBox())?.height;
  const before = await height();
  await give('paste', 'late.txt', Buffer.from('late'));
  await view.getByText('Attaching…').waitFor();
  await view.getByRole('tab', { name: 'Snapshots' }).click();
  await box.waitFor({ state: 'hidden' });
  resolve(undefined);
  await view.locator('.prompt-box').getByText('late.txt').waitFor({ state: 'attached' });
  expect(await harness.faults()).toEqual([]);
  await harness.reload();
  await harness.send('state', state());
  await view.getByRole('tab', { name: 'Conversation' }).click();
  await view.getByRole('list', { name: 'Attachments' }).getByText('late.txt').waitFor();
  expect(await height()).toBe(before);
});

test('a prompt in the queue is edited with its files, and the draft comes back with its own', async () => {
  const { page: view } = await open({ answers: givenUploads().answers });
  await harness.send('state', running());
  const queued = [prompt(5, 'Waits', { state: 'queued', attachments: [picture, notes], turnId: NEXT_TURN })];
  await harness.send('begin', { ...page([prompt(1, 'go')]), queued });
  await view.getByRole('textbox').fill('Mine');
  await give('drop', 'mine.txt', Buffer.from('mine'));
  const list = view.locator('.prompt-box').getByRole('list', { name: 'Attachments' });
  await list.getByText('mine.txt').waitFor();
  await view.getByRole('button', { name: 'Edit this prompt' }).click();
  await list.getByText('notes.md').waitFor();
  expect(await list.getByText('mine.txt').count()).toBe(0);
  await view.getByRole('button', { name: 'Remove notes.md' }).click();
  await view.getByRole('textbox').press('Enter');
  await expect.poll(() => prompts().length).toBe(1);
  expect(prompts()[0]).toMatchObject({
    name: 'edit',
    params: { text: 'Waits', attachments: [{ name: 'shot.png' }] },
  });
  await list.getByText('mine.txt').waitFor();
  expect(await view.getByRole('textbox').inputValue()).toBe('Mine');
});

test('what cannot be attached or drawn says why', async () => {
  const { page: view } = await open({
    answers: {
      upload: () => {
        throw new Error('The disk of the host is full');
      },
      picture: () => {
        throw new Error('This is not a picture that can be drawn');
      },
    },
  });
  await harness.send('state', state());
  await harness.send('begin', page([prompt(1, 'Look', { attachments: [picture] })]));
  await view.getByRole('button', { name: 'shot.png: This is not a picture that can be drawn' }).waitFor();
  await give('paste', 'a.txt', Buffer.from('a'));
  await view.getByText('The disk of the host is full').waitFor();
  await give('paste', 'huge.bin', Buffer.alloc(10 * 2 ** 20 + 1));
  await view.getByText('huge.bin is too large to attach').waitFor();
});

test('a prompt that is too long is refused as a whole, and nothing of the draft is lost', async () => {
  const { page: view } = await open();
  await harness.send('state', running());
  await harness.send('begin', page([]));
  const box = view.getByRole('textbox', { name: 'Prompt for the agent' });
  await box.fill('Short.');
  await box.fill('x'.repeat(256 * 1024 + 1));
  await view.getByText('at most 262144 characters').waitFor();
  expect(await box.inputValue()).toBe('Short.');
  await harness.reload();
  await harness.send('state', running());
  await harness.send('begin', page([]));
  await expect.poll(() => box.inputValue()).toBe('Short.');
});
