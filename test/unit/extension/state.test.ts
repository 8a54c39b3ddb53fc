import { describe, expect, test } from 'vitest';
import { backoffMs, mayStart } from '../../../extension/connection/state.ts';
import { COMMANDS, conduct } from '../../../extension/commands/table.ts';
import { inert } from '../../../extension/inert.ts';

const crash = (at: number) => ({ at, onPurpose: false });

describe('when the editor may start a supervisor', () => {
  test('at first use, and after a crash', () => {
    expect(mayStart([], false, 0)).toBe(true);
    expect(mayStart([crash(1_000)], false, 2_000)).toBe(true);
  });

  test('not where somebody stopped it, or it cannot start', () => {
    expect(mayStart([crash(0), { at: 500, onPurpose: true }], false, 90_000)).toBe(false);
    expect(mayStart([], true, 0)).toBe(false);
  });

  test('not for ever when it crashes again and again, and again when it has been quiet', () => {
    const crashes = [crash(1_000), crash(2_000), crash(3_000)];
    expect(mayStart(crashes, false, 4_000)).toBe(false);
    expect(mayStart(crashes, false, 64_000)).toBe(true);
  });
});

test('the time between two tries grows and ends at half a minute', () => {
  expect([0, 1, 2, 6, 7, 8, 1000].map(backoffMs)).toEqual([250, 500, 1000, 16_000, 30_000, 30_000, 30_000]);
});

test('a command that needs a sandbox explains where the engine is down; the log is always there', () => {
  expect(conduct(COMMANDS['holdfast.newSession'], 'engineDown')).toBe('explain');
  expect(conduct(COMMANDS['holdfast.newSession'], 'unused')).toBe('wait');
  expect(conduct(COMMANDS['holdfast.showLog'], 'noSupervisor')).toBe('run');
});

test('text of an agent has no links, icons, controls or hidden characters left', () => {
  expect(inert('[run](command:evil) $(trash)')).toBe('[run] (command:evil) $ (trash)');
  expect(inert('a\u202eb\u001b[2J\u200bc\nd')).toBe('a\\u{202e}b\\u{1b}[2J\\u{200b}c d');
  expect(inert('x'.repeat(500))).toHaveLength(201);
});
