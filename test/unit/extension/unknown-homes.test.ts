import { beforeEach, expect, test, vi } from 'vitest';
import type { FileSystemProvider, Uri } from 'vscode';
import { GuardedFiles } from '../../../extension/files/guarded-files.ts';

/** A fake window: the questions that are open, and the commands that ran. */
const fake = vi.hoisted(() => ({
  questions: [] as { text: string; answer: (choice: string | undefined) => void }[],
  commands: [] as string[],
}));

vi.mock('vscode', () => ({
  FileSystemError: { Unavailable: (message: string) => new Error(message) },
  window: {
    showWarningMessage: (text: string) => new Promise((answer) => fake.questions.push({ text, answer })),
  },
  commands: {
    executeCommand: (command: string) => {
      fake.commands.push(command);
      return Promise.reject(new Error('no such machine'));
    },
  },
  workspace: {},
}));

beforeEach(() => {
  fake.questions.length = 0;
  fake.commands.length = 0;
});

const home = (letter: string): string => letter.repeat(26);
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** A window that knows the home of `a…`. */
function given() {
  const stat = vi.fn();
  const guard = { assertFilesAllowed: () => undefined } as never;
  const homes = { at: ({ authority }: Uri) => (authority.endsWith(home('a')) ? ({} as never) : undefined) };
  const files = new GuardedFiles({ stat } as unknown as FileSystemProvider, guard, homes);
  const open = (letter: string) => async () => {
    const authority = `ses-${'b'.repeat(16)}.${home(letter)}`;
    const uri: Pick<Uri, 'scheme' | 'authority' | 'path'> = {
      scheme: 'holdfast',
      authority,
      path: '/workspace/a',
    };
    await files.stat(uri as Uri);
  };
  return { stat, open };
}

test('a link of an unknown home says so and offers once to connect to its host', async () => {
  const { stat, open } = given();
  for (let times = 0; times < 3; times += 1) await expect(open('c')()).rejects.toThrow('another machine');
  expect(fake.questions.map(({ text }) => text)).toEqual([expect.stringContaining(`(home ${home('c')})`)]);
  fake.questions[0]?.answer('Connect to Host…');
  await settled();
  expect(fake.commands).toEqual(['holdfast.connectHost']);
  await expect(open('c')()).rejects.toThrow();
  expect(fake.questions).toHaveLength(1);
  expect(stat).not.toHaveBeenCalled();
});

test('a known home offers nothing, and of many unknown ones only the first few are offered', async () => {
  const { stat, open } = given();
  await open('a')();
  expect(stat).toHaveBeenCalledOnce();
  for (const letter of 'bcdefghij') {
    await expect(open(letter)()).rejects.toThrow();
    fake.questions.at(-1)?.answer(undefined);
    await settled();
  }
  expect(fake.questions).toHaveLength(5);
  expect(fake.commands).toEqual([]);
});
