import { describe, expect, test } from 'vitest';
import { UsageError, withNames } from '../../../cli/failure.ts';
import { withMachine } from '../../../cli/dial-host.ts';
import { commandOn, withHost } from '../../../cli/suggested-commands.ts';
import { HoldfastError } from '../../../protocol/errors.ts';

describe('a command that is proposed after one for another machine', () => {
  test.each([
    ['secret set TOKEN', 'holdfast secret set TOKEN --host far'],
    ["run task '…'", "holdfast run task '…' --host far"],
    ['exec default -- ls -la', 'holdfast exec default --host far -- ls -la'],
    ['terminal open default -- npm run watch', 'holdfast terminal open default --host far -- npm run watch'],
    // These are about this machine, or name theirs.
    ['host doctor far', 'holdfast host doctor far'],
    ['deploy DIR --host local', 'holdfast deploy DIR --host local'],
    ['session update --help', 'holdfast session update --help'],
    ['supervisor logs', 'holdfast supervisor logs'],
  ])('%s', (words, command) => {
    expect(commandOn('far', words)).toBe(command);
    expect(commandOn(null, words)).toBe(`holdfast ${words}`);
  });

  test('is found in backticks, and nowhere else', () => {
    const text = 'holdfast is old; see `holdfast session list`, then `holdfast gc`, or `ls`';
    expect(withHost(text, 'far')).toBe(
      'holdfast is old; see `holdfast session list --host far`, then `holdfast gc --host far`, or `ls`',
    );
    expect(withHost(text, null)).toBe(text);
  });

  test('is in the advice of errors and of mistakes', () => {
    const error = new HoldfastError('not_found', 'There is none', {
      next: 'see `holdfast review SESSION`',
      details: { line: 3 },
    });
    expect(withNames(error, { SESSION: 'my task' }, 'far')).toMatchObject({
      code: 'not_found',
      message: 'There is none',
      next: "see `holdfast review 'my task' --host far`",
      details: { line: 3 },
    });
    expect(withNames(error, {}, null)).toBe(error);
    const mistake = new UsageError('x is no turn; see `holdfast turn list SESSION`', 'invalid_params');
    expect(withNames(mistake, {}, 'far')).toMatchObject({
      code: 'invalid_params',
      message: 'x is no turn; see `holdfast turn list SESSION --host far`',
    });
    expect(withNames(mistake, {}, null)).toBe(mistake);
  });
});

test('the progress of a connection names its machine once', () => {
  expect(withMachine('far', 'Connecting')).toBe('Connecting (far)');
  expect(withMachine('far', 'Sending Node to far: 12 %')).toBe('Sending Node to far: 12 %');
});
