import { expect, test } from 'vitest';
import { TEXT } from '../../../protocol/contents.ts';
import type { EventEntry } from '../../../protocol/events.ts';
import { endedTurns } from '../../../supervisor/bundles/imported-turns.ts';
import { thrownError, turnId } from '../../fixtures/store/temporary-home.ts';

function content(bytes: number) {
  return { sha256: 'a'.repeat(64), bytes, mediaType: TEXT };
}

function queued(n: number, bytes = 10, inputBytes = bytes): EventEntry {
  const data = { turnId: turnId(n), kind: 'command' as const, inputBytes, preview: '', timeoutMs: 1 };
  return { type: 'turn.queued', data: { ...data, content: content(bytes) }, at: 1 };
}

function output(n: number, offset: number, bytes: number, named = bytes): EventEntry {
  const data = { turnId: turnId(n), stream: 'stdout' as const, offset, bytes, content: content(named) };
  return { type: 'turn.output', data, at: 2 };
}

function ended(n: number, status: 'succeeded' | 'running' = 'succeeded'): EventEntry {
  return {
    type: 'turn.ended',
    data: {
      ...{ turnId: turnId(n), status, exitCode: 0, error: null, content: null, outputArtifact: false },
      ...{ turnMs: 1, workerStartMs: null, workerId: null, workerReused: null },
    },
    at: 3,
  };
}

test('turns that have ended are there with their outputs, others are not', () => {
  const turns = endedTurns([queued(0), output(0, 0, 4), output(0, 4, 3), queued(1), ended(0)]);
  expect(turns.map(({ id }) => id)).toEqual([turnId(0)]);
  expect(turns[0]).toMatchObject({ createdAt: 1, endedAt: 3, bytes: { stdout: 7, stderr: 0 } });
  expect(turns[0]?.pieces.map(({ start, bytes }) => [start, bytes])).toEqual([
    [0, 4],
    [4, 3],
  ]);
});

test.each<[string, EventEntry[]]>([
  ['begins a turn twice', [queued(0), queued(0)]],
  ['has a prompt of another size', [queued(0, 10, 11)]],
  ['changes a turn that never began', [output(0, 0, 1)]],
  ['changes a turn that is over', [queued(0), ended(0), output(0, 0, 1)]],
  ['has an output with a gap', [queued(0), output(0, 5, 1)]],
  ['has an output of another size', [queued(0), output(0, 0, 1, 2)]],
  ['ends a turn without an end', [queued(0), ended(0, 'running')]],
  [
    'names one large prompt for many turns',
    Array.from({ length: 100 }, (_, n) => [queued(n, 4 * 2 ** 20), ended(n)]).flat(),
  ],
])('a history that %s is refused', (_, entries) => {
  expect(thrownError(() => endedTurns(entries)).code).toBe('snapshot_damaged');
});
