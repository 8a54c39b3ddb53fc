import { expect, test } from 'vitest';
import type { AgentSetting } from '../../../protocol/agent-settings.ts';
import { MAX_PICKS } from '../../../webview/messages.ts';
import { pickersOf } from '../../../extension/sessions/setting-labels.ts';

const setting = (more: Partial<AgentSetting> = {}): AgentSetting => ({
  id: 'mode',
  name: 'Mode',
  category: 'mode',
  value: 'ask',
  chosen: null,
  values: [
    { value: 'ask', name: 'Ask' },
    { value: 'plan', name: 'Plan' },
  ],
  ...more,
});

test('mode and model are picked, by category before id, and what was chosen counts', () => {
  const model = setting({ id: 'llm', category: 'model', chosen: 'plan' });
  const other = setting({ id: 'model', category: '' });
  expect(pickersOf([other, model, setting()])).toEqual([
    { what: 'mode', value: 'ask', options: setting().values },
    { what: 'model', value: 'plan', options: setting().values },
  ]);
  expect(pickersOf([setting({ values: [{ value: 'ask', name: '' }] })])).toEqual([]);
});

test('names are shown without what acts, short, and in their place', () => {
  const values = [
    { value: 'one', name: '\u202eevil\u001b[31m\n$(zap)' },
    { value: 'two', name: ' \u0000' },
    ...Array.from({ length: 200 }, (_, n) => ({ value: `v${n}`, name: 'x'.repeat(100) })),
  ];
  const [picker] = pickersOf([setting({ value: 'v150', values })]);
  expect(picker?.options.length).toBe(MAX_PICKS);
  expect(picker?.options.some(({ value }) => value === 'v150')).toBe(true);
  for (const { name } of picker?.options ?? []) {
    expect(name).not.toMatch(/[\p{C}]/u);
    expect(name.length).toBeLessThanOrEqual(61);
  }
  const [gone] = pickersOf([setting({ value: 'no longer offered' })]);
  expect(gone?.options[0]).toEqual({ value: 'no longer offered', name: 'no longer offered' });
});
