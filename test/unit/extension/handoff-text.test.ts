import { expect, test } from 'vitest';
import { describeLeftOut } from '../../../extension/handoff/plan-text.ts';
import { fromText } from '../../../project/raw-path.ts';

type Plan = Parameters<typeof describeLeftOut>[0];

const NOTHING: Plan = {
  travels: [],
  released: [],
  quarantined: [],
  refused: [],
  ignored: [],
  notChosen: 0,
  begun: {
    review: { id: 'rev-aaaaaaaaaaaaaaaa', notAccepted: 0 },
    running: 0,
    base: { kind: 'review' } as Plan['begun']['base'],
    target: { missing: 0 },
  },
};

test('what stays behind is said, a line each', () => {
  expect(describeLeftOut(NOTHING)).toEqual([]);
  const plan: Plan = {
    ...NOTHING,
    released: [{ path: fromText('package.json'), risks: ['executes'] }],
    quarantined: [{ path: fromText('.vscode/tasks.json'), risks: ['executes'] }],
    refused: [{ path: fromText('.git/config'), why: 'git' }],
    ignored: [fromText('node_modules/x'), fromText('node_modules/y')],
    begun: { ...NOTHING.begun, review: { id: 'rev-aaaaaaaaaaaaaaaa', notAccepted: 2 }, running: 1 },
  };
  expect(describeLeftOut(plan)).toEqual([
    '2 changes not accepted stay behind.',
    'You let 1 file out of quarantine: package.json.',
    '1 file stays in quarantine: .vscode/tasks.json.',
    '1 path no repository may get: .git/config (git).',
    '2 ignored files stay behind.',
    'The agent is still running: its later changes are not part of this handoff.',
  ]);
});
