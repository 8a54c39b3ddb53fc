import { expect, test } from 'vitest';
import { Draft } from '../../../webview/draft.ts';

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
  await expect(load().send('again')).rejects.toThrow('lost');
  const draft = load();
  expect(draft.text).toBe('again');
  await expect(draft.send('again')).rejects.toThrow('its turn has ended');
  expect(draft.text).toBe('again');
  await draft.send('again');
  expect(opIds[1]).toBe(opIds[0]);
  expect(opIds[2]).not.toBe(opIds[0]);
});

test('a turn that has ended with the first answer was sent', async () => {
  await expect(givenPage([true]).load().send('quick')).resolves.toBeUndefined();
});

test('a draft that was taken back from the queue is another prompt', async () => {
  const { load, opIds } = givenPage([null, null, false]);
  const draft = load();
  await expect(draft.send('again')).rejects.toThrow('lost');
  draft.forgetSent('another');
  await expect(draft.send('again')).rejects.toThrow('lost');
  draft.forgetSent('again');
  await draft.send('again');
  expect(opIds[1]).toBe(opIds[0]);
  expect(opIds[2]).not.toBe(opIds[0]);
});
