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
