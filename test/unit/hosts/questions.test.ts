import { expect, test } from 'vitest';
import { isAboutHostKey, Questions } from '../../../hosts/connector/questions.ts';

test.for([
  ["The authenticity of host 'far (10.0.0.1)' can't be established.\n… (yes/no/[fingerprint])? ", true],
  ["Please type 'yes', 'no' or the fingerprint: ", true],
  ["(me@far) The authenticity of host 'far' can't be established (yes/no)? ", false],
  ['(me@far) Password (yes/no/[fingerprint])? ', false],
  ["Enter passphrase for key '/home/me/.ssh/id': ", false],
] as const)('an answer to %j is shown while it is typed: %j', async ([text, isShown]) => {
  expect(isAboutHostKey(text)).toBe(isShown);
  const asked: boolean[] = [];
  const questions = new Questions();
  questions.add(({ isSecret }) => {
    asked.push(isSecret);
    return Promise.resolve('x');
  });
  await questions.ask(text);
  expect(asked).toEqual([!isShown]);
});
