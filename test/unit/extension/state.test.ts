import { describe, expect, test } from 'vitest';
import { backoffMs, mayStartSupervisor } from '../../../protocol/client/reconnect-plan.ts';
import { COMMANDS, availabilityIn } from '../../../extension/commands/table.ts';
import { sanitize } from '../../../extension/base/sanitize.ts';

const crash = (at: number) => ({ at, isIntended: false });

describe('when the editor may start a supervisor', () => {
  test('at first use, and after a crash', () => {
    expect(mayStartSupervisor([], false, 0)).toBe(true);
    expect(mayStartSupervisor([crash(1_000)], false, 2_000)).toBe(true);
  });

  test('not after somebody stopped it, or a start failed', () => {
    expect(mayStartSupervisor([crash(0), { at: 500, isIntended: true }], false, 90_000)).toBe(false);
    expect(mayStartSupervisor([], true, 0)).toBe(false);
  });

  test('not after repeated crashes in a minute, but later again', () => {
    const crashes = [crash(1_000), crash(2_000), crash(3_000)];
    expect(mayStartSupervisor(crashes, false, 4_000)).toBe(false);
    expect(mayStartSupervisor(crashes, false, 64_000)).toBe(true);
  });
});

test('the delay between two attempts grows up to half a minute', () => {
  expect([0, 1, 2, 6, 7, 8, 1000].map(backoffMs)).toEqual([250, 500, 1000, 16_000, 30_000, 30_000, 30_000]);
});

test('a command that needs a sandbox explains that the engine is down; the log always opens', () => {
  expect(availabilityIn(COMMANDS['holdfast.newSession'], 'engineDown')).toBe('explain');
  expect(availabilityIn(COMMANDS['holdfast.newSession'], 'unused')).toBe('wait');
  expect(availabilityIn(COMMANDS['holdfast.showLog'], 'noSupervisor')).toBe('run');
});

test('sanitized text of an agent has no links, icons, control characters or invisible characters', () => {
  expect(sanitize('[run](command:evil) $(trash)')).toBe('[run] (command:evil) $ (trash)');
  expect(sanitize('a\u202eb\u001b[2J\u200bc\nd')).toBe('a\\u{202e}b\\u{1b}[2J\\u{200b}c d');
  expect(sanitize('x'.repeat(500))).toHaveLength(201);
});
