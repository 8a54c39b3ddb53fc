import { expect, test } from 'vitest';
import { formatTranscript } from '../../../extension/history/format-transcript.ts';
import type { SessionEvent } from '../../../protocol/entities.ts';

const turnId = 'turn-aaaaaaaaaaaaaaaa';

function text(type: string, data: SessionEvent['data'], content?: string): string {
  const hash = '0'.repeat(64);
  const sessionId = 'ses-aaaaaaaaaaaaaaaa';
  const at = '2026-01-01T10:00:00.000Z';
  return formatTranscript({ sessionId, seq: 1, at, type, data, prevHash: hash, hash }, content);
}

function output(more: SessionEvent['data']): string {
  return text('turn.output', { turnId, stream: 'stdout', offset: 0, bytes: 4, ...more });
}

function ended(more: SessionEvent['data']): string {
  return text('turn.ended', {
    turnId,
    status: 'succeeded',
    exitCode: 0,
    error: null,
    output: null,
    outputArtifact: false,
    turnMs: 1234,
    workerStartMs: null,
    workerId: null,
    workerReused: null,
    ...more,
  });
}

test('a turn shows its prompt, its output chunks without separators, and how it ended', () => {
  const queued = { turnId, kind: 'command', inputBytes: 9, preview: 'say hello', timeoutMs: 1000 };
  const all = [
    text('turn.queued', queued),
    output({ text: 'hel' }),
    output({ text: 'lo\n' }),
    ended({}),
  ].join('');
  expect(all).toMatch(/^\n❯ say hello {3}· \d\d:\d\d:\d\d\nhello\n\n— Succeeded after 1\.2 s\n$/);
});

test('an edited prompt is shown again', () => {
  const content = { sha256: '0'.repeat(64), bytes: 4, mediaType: 'text/plain; charset=utf-8' };
  const edited = { turnId, inputBytes: 7, preview: 'say bye', content };
  expect(text('turn.edited', edited)).toMatch(/^\n❯ say bye {3}· edited \d\d:\d\d:\d\d\n$/);
});

test('a failed turn shows the reason, and a handler its return value', () => {
  expect(ended({ status: 'failed', exitCode: 3 })).toBe('\n— Failed after 1.2 s: exit code 3\n');
  const error = { message: 'the sandbox was lost', data: { code: 'sandbox_lost' } };
  expect(ended({ status: 'failed', exitCode: null, turnMs: null, error })).toContain(
    '— Failed: the sandbox was lost',
  );
  expect(ended({ output: { count: 1 } })).toContain('{\n  "count": 1\n}\n\n— Succeeded');
});

test('output has visible control characters, a limit, and a placeholder if it is not text', () => {
  expect(output({ text: '\u001b]52;c;evil\u0007\u202e\r\nnext' })).toBe(
    '\\u{1b}]52;c;evil\\u{7}\\u{202e}\nnext',
  );
  expect(output({ text: 'x'.repeat(1e6) }).length).toBeLessThan(201_000);
  expect(output({ base64: 'AAAA' })).toBe('\n(4 bytes of output are not text)\n');
});

test('a whole prompt, output and a result come from their contents, and a large result only once', () => {
  const content = { sha256: '0'.repeat(64), bytes: 4, mediaType: 'text/plain; charset=utf-8' };
  const queued = { turnId, kind: 'command', inputBytes: 9, preview: 'say', content, timeoutMs: 1000 };
  expect(text('turn.queued', queued, 'say hello')).toMatch(/^\n❯ say hello /);
  const written = { turnId, stream: 'stdout', offset: 0, bytes: 4, content };
  expect(text('turn.output', written, 'hel\u0007')).toBe('hel\\u{7}');
  expect(
    text('turn.output', { ...written, content: { ...content, mediaType: 'application/octet-stream' } }),
  ).toBe('\n(4 bytes of output are not text)\n');
  expect(text('turn.output', { ...written, stream: 'result' }, '{"count":1}')).toBe('');
  const end = {
    turnId,
    status: 'succeeded',
    exitCode: null,
    error: null,
    content,
    outputArtifact: true,
    turnMs: null,
    workerStartMs: null,
    workerId: null,
    workerReused: null,
  };
  expect(text('turn.ended', end, '{"count":1}')).toBe('{\n  "count": 1\n}\n\n— Succeeded\n');
  expect(text('turn.ended', end, '{"cou')).toBe('{"cou\n\n— Succeeded\n');
});

test('other events appear only in the history', () => {
  expect(text('session.status', { from: 'idle', to: 'paused', why: 'asked' })).toBe('');
  expect(text('moon.rose', { phase: 'full' })).toBe('');
});
