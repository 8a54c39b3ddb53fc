import { expect, test } from 'vitest';
import { isAboutHostKey, isAskedByHost, Questions } from '../../../hosts/connector/questions.ts';

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

test('a secret that is asked for again says so, and the question about a host key does not', async () => {
  const questions = new Questions();
  const asked: string[] = [];
  questions.add(({ text }) => {
    asked.push(text);
    return Promise.resolve('x');
  });
  const code = '(me@far) Verification code: ';
  const hostKey = "Please type 'yes', 'no' or the fingerprint: ";
  for (const text of [code, code, 'Password: ', code, hostKey, hostKey]) await questions.ask(text);
  const again = `Asked again, the last answer may be wrong: ${code}`;
  expect(asked).toEqual([code, again, 'Password: ', code, hostKey, hostKey]);
});

test('the next client is asked when the first has gone, and nobody else when its person declines', async () => {
  const questions = new Questions();
  expect(await questions.ask('Password: ')).toBeUndefined();
  questions.add(() => Promise.resolve(undefined));
  questions.add(() => Promise.resolve(null));
  questions.add(() => Promise.resolve('never asked'));
  expect(await questions.ask('Password: ')).toBeNull();
});

test.for([
  ['(me@far) Verification code: ', true],
  ["me@far's password: ", true],
  // Another key may do without.
  ["Enter passphrase for key '/home/me/.ssh/id': ", false],
  ["Please type 'yes', 'no' or the fingerprint: ", false],
] as const)('%j is asked by the other machine: %j', ([text, isOfHost]) => {
  expect(isAskedByHost(text)).toBe(isOfHost);
});
