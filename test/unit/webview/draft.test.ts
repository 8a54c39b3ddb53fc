import { expect, test } from 'vitest';
import { ATTACHMENT_LIMITS } from '../../../protocol/attachment-names.ts';
import { Draft } from '../../../webview/draft.ts';

const AGAIN = { text: 'again', attachments: [] };

/** A page that can be loaded again, and what the extension answers: null for a lost answer, else whether the turn has ended. */
function givenPage(answers: (boolean | null)[]) {
  const opIds: string[] = [];
  let saved: unknown;
  const load = (): Draft =>
    new Draft({
      session: 's',
      read: () => saved,
      save: (page) => (saved = structuredClone(page)),
      request: ({ opId }) => {
        opIds.push(opId);
        const hasEnded = answers.shift() ?? null;
        return hasEnded === null ? Promise.reject(new Error('lost')) : Promise.resolve({ hasEnded });
      },
    });
  return { load, opIds };
}

test('a prompt whose answer was lost is the same turn; if that has ended, the text stays and is another prompt', async () => {
  const { load, opIds } = givenPage([null, true, false]);
  await expect(load().send(AGAIN)).rejects.toThrow('lost');
  const draft = load();
  expect(draft.written).toEqual(AGAIN);
  await expect(draft.send(AGAIN)).rejects.toThrow('its turn has ended');
  expect(draft.written).toEqual(AGAIN);
  await draft.send(AGAIN);
  expect(opIds[1]).toBe(opIds[0]);
  expect(opIds[2]).not.toBe(opIds[0]);
});

test('a turn that has ended with the first answer was sent', async () => {
  await expect(givenPage([true]).load().send({ text: 'quick', attachments: [] })).resolves.toBeUndefined();
});

test('a draft that was taken back from the queue is another prompt', async () => {
  const { load, opIds } = givenPage([null, null, false]);
  const draft = load();
  await expect(draft.send(AGAIN)).rejects.toThrow('lost');
  draft.forgetSent('another');
  await expect(draft.send(AGAIN)).rejects.toThrow('lost');
  draft.forgetSent('again');
  await draft.send(AGAIN);
  expect(opIds[1]).toBe(opIds[0]);
  expect(opIds[2]).not.toBe(opIds[0]);
});

test('other attachments make another prompt, and a reload keeps them', async () => {
  const { load, opIds } = givenPage([null, null, null, false]);
  const picture = {
    ...{ kind: 'image' as const, name: 'shot.png' },
    content: { sha256: '0'.repeat(64), bytes: 3, mediaType: 'image/png' },
  };
  await expect(load().send(AGAIN)).rejects.toThrow('lost');
  const withPicture = { text: 'again', attachments: [picture] };
  await expect(load().send(withPicture)).rejects.toThrow('lost');
  expect(load().written).toEqual(withPicture);
  await expect(load().send(withPicture)).rejects.toThrow('lost');
  const draft = load();
  draft.written = { text: 'again', attachments: [] };
  await draft.send(AGAIN);
  expect(opIds[1]).not.toBe(opIds[0]);
  expect(opIds[2]).toBe(opIds[1]);
  expect(opIds[3]).not.toBe(opIds[2]);
});

test('more files than a prompt can have do not take the text along', () => {
  const { load } = givenPage([]);
  const attachments = Array.from({ length: ATTACHMENT_LIMITS.count + 1 }, (_, n) => ({
    ...{ kind: 'file' as const, name: `${n}.txt` },
    content: { sha256: '0'.repeat(64), bytes: 1, mediaType: 'text/plain' },
  }));
  load().written = { text: 'an hour of typing', attachments };
  const { text, attachments: kept } = load().written;
  expect(text).toBe('an hour of typing');
  expect(kept).toEqual(attachments.slice(0, ATTACHMENT_LIMITS.count));
});

test('a draft leaves alone what else is kept of its page', () => {
  const place = { id: 7, at: 7, top: -12 };
  let saved: unknown = { session: 's', tab: 'snapshots', restore: true, place };
  const draft = new Draft({
    session: 's',
    read: () => saved,
    save: (page) => (saved = structuredClone(page)),
    request: () => Promise.resolve({ hasEnded: false }),
  });
  draft.written = AGAIN;
  expect(saved).toMatchObject({ tab: 'snapshots', restore: true, place, draft: 'again' });
});
