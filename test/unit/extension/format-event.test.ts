import { expect, test } from 'vitest';
import { formatEvent } from '../../../extension/history/format-event.ts';
import type { SessionEvent } from '../../../protocol/entities.ts';

function event(type: string, data: SessionEvent['data']): SessionEvent {
  const hash = '0'.repeat(64);
  const sessionId = 'ses-aaaaaaaaaaaaaaaa';
  return { sessionId, seq: 1, at: '2026-01-01T10:00:00.000Z', type, data, prevHash: hash, hash };
}
const turnId = 'turn-aaaaaaaaaaaaaaaa';

test('an event is a line with its time, type and summary', () => {
  expect(formatEvent(event('session.status', { from: 'idle', to: 'paused', why: 'asked' }))).toBe(
    '2026-01-01 10:00:00.000  session.status       idle → paused (asked)',
  );
});

test('a snapshot shows its label, or the reason why it was created', () => {
  const data = {
    snapshotId: 'snp-aaaaaaaaaaaaaaaa',
    reason: 'before-turn',
    label: null,
    root: '0'.repeat(64),
    files: 12,
    bytes: 100,
    changedFiles: 3,
    newBytes: 10,
    frozenMs: 0,
  };
  expect(formatEvent(event('snapshot.created', data))).toMatch(
    / snp-aaaaaaaaaaaaaaaa before turn: 12 files, 3 changed$/,
  );
  expect(formatEvent(event('snapshot.created', { ...data, label: 'works' }))).toMatch(/ works: 12 files/);
});

test('output of an agent has a bar before each line, and its control characters are visible', () => {
  const text = 'one\r\n\u001b]52;c;evil\u0007\u202e\u2028two\n';
  const data = { turnId, stream: 'stdout', offset: 0, bytes: 20, text };
  const [, ...lines] = formatEvent(event('turn.output', data)).split('\n');
  expect(lines).toEqual(['    │ one', '    │ \\u{1b}]52;c;evil\\u{7}\\u{202e}\\u{2028}two']);
});

test('the content of an event is shown under it', () => {
  const content = { sha256: '0'.repeat(64), bytes: 9, mediaType: 'text/plain; charset=utf-8' };
  const data = { turnId, kind: 'command', inputBytes: 9, preview: 'say', content, timeoutMs: 1000 };
  expect(formatEvent(event('turn.queued', data), 'say\nhello').split('\n').slice(1)).toEqual([
    '    │ say',
    '    │ hello',
  ]);
});

test('long lines and long output are truncated', () => {
  const data = {
    turnId,
    stream: 'stdout',
    offset: 0,
    bytes: 1,
    text: `${'x'.repeat(1e6)}\n${'y\n'.repeat(5_000)}`,
  };
  const text = formatEvent(event('turn.output', data));
  expect(text.length).toBeLessThan(5_000);
  expect(text).toMatch(/… 4801 more lines$/);
});

test('an unknown event of a later version shows its data', () => {
  expect(formatEvent(event('moon.rose', { phase: 'full' }))).toMatch(/moon\.rose +\{"phase":"full"\}$/);
});
