import { expect, test } from 'vitest';
import { formatItem } from '../../../cli/render/conversation.ts';
import { createStyle } from '../../../cli/render/style.ts';
import { formatEvent } from '../../../extension/history/format-event.ts';
import { formatTranscript } from '../../../extension/history/format-transcript.ts';
import { ConversationItemSchema } from '../../../protocol/conversation.ts';
import { projectEvent } from '../../../protocol/conversation-projection.ts';
import type { SessionEvent } from '../../../protocol/entities.ts';
import { changesTurn } from '../../../protocol/event-facts.ts';
import { EVENT_TYPES, type EventEntry, type EventType } from '../../../protocol/events.ts';

const TYPES = Object.keys(EVENT_TYPES) as EventType[];

function event(type: EventType, data: SessionEvent['data']): SessionEvent {
  const hash = '0'.repeat(64);
  const sessionId = 'ses-aaaaaaaaaaaaaaaa';
  return { sessionId, seq: 7, at: '2026-01-01T10:00:00.000Z', type, data, prevHash: hash, hash };
}

const NEAR_LIMIT = event('workspace.near-limit', { bytes: 950, limit: 1000 });
const TEXT = 'The workspace is nearly full: 95 % of its limit is used';

test('a note of an event type is said everywhere without further code', () => {
  const [change] = projectEvent(NEAR_LIMIT, () => undefined);
  const item = ConversationItemSchema.parse({ ...change?.item, text: null, cut: false });
  expect(item).toMatchObject({ type: 'mark', mark: 'note', icon: 'warning', note: TEXT, isWarning: true });
  expect(formatItem(item, createStyle(false, {}))).toEqual([`— ${TEXT}`]);
  expect(formatEvent(NEAR_LIMIT)).toContain(TEXT);
  expect(formatTranscript(NEAR_LIMIT)).toBe(`\n— ${TEXT}\n`);
});

test('an event about which the table says nothing is its fields in the history, and nothing elsewhere', () => {
  const plain = event('workspace.measured', { bytes: 950 });
  expect(projectEvent(plain, () => undefined)).toEqual([]);
  expect(formatEvent(plain)).toContain('bytes=950');
  expect(formatTranscript(plain)).toBe('');
});

test('the snapshot at the start of a session is in its history, and its conversation still says that nothing happened', () => {
  const created = (reason: string): SessionEvent =>
    event('snapshot.created', {
      ...{
        snapshotId: 'snp-aaaaaaaaaaaaaaaa',
        reason,
        label: null,
        root: '0'.repeat(64),
        files: 1,
        bytes: 1,
      },
      ...{ changedFiles: 1, newBytes: 1, frozenMs: 0 },
    });
  expect(projectEvent(created('start'), () => undefined)).toEqual([]);
  expect(formatEvent(created('start'))).not.toBe('');
  expect(projectEvent(created('after-turn'), () => undefined)).toMatchObject([
    { item: { mark: 'snapshot' } },
  ]);
});

test('an event that changes a turn names the turn', () => {
  const changing = TYPES.filter((type) => changesTurn({ type, data: {} } as EventEntry));
  expect(changing).toHaveLength(8);
  for (const type of changing) expect(EVENT_TYPES[type].data.shape).toHaveProperty('turnId');
});
