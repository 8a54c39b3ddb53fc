import { expect, test } from 'vitest';
import { parseEvent } from '../../../protocol/events.ts';

const data = { snapshotId: 'snp-aaaaaaaaaaaaaaaa', code: 'no_space', why: 'The disk is full' };

test.each(['workspace.fill-failed', 'workspace.hydration-failed'])(
  'an event stored as %s is read under its current type',
  (type) => {
    expect(parseEvent({ type, data })).toEqual({ type: 'workspace.hydration-failed', data });
  },
);

test.each(['workspace.unheard-of', 'constructor', '__proto__', 'toString'])(
  'an event of the unknown type %s is ignored',
  (type) => {
    expect(parseEvent({ type, data: {} })).toBeNull();
  },
);

test('a handoff of an earlier version, which knew no reviews, is read', () => {
  const handoff = {
    ...{
      handoffId: 'hand-aaaaaaaaaaaaaaaa',
      manifestId: 'man-aaaaaaaaaaaaaaaa',
      snapshot: 'snp-aaaaaaaaaaaaaaaa',
    },
    ...{ base: '0'.repeat(64), target: '1'.repeat(64), to: 'branch', branch: 'holdfast/work' },
    ...{ commit: null, tree: null, files: 1, released: 0, quarantined: 0 },
  };
  for (const type of ['handoff.approved', 'handoff.made', 'handoff.undone'])
    expect(parseEvent({ type, data: handoff })).toEqual({ type, data: { ...handoff, review: null } });
});
