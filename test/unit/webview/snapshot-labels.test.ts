import { expect, test } from 'vitest';
import type { PageSnapshot } from '../../../webview/late-messages.ts';
import { factsOf } from '../../../webview/late/snapshot-labels.ts';

const snapshot = (more: Partial<PageSnapshot>): PageSnapshot => ({
  ...{
    id: 'snp-aaaaaaaaaaaaaaaa',
    createdAt: '2026-11-22T11:42:00.000Z',
    reason: 'before-turn',
    label: null,
  },
  ...{ pinned: false, files: 3, bytes: 100, changedFiles: 0, newBytes: 0, eventSeq: 1, turn: null },
  ...{ duringTurn: false, missing: 0, author: 'supervisor' },
  ...more,
});

test('a snapshot says how much changed, and nothing about bytes where none are new', () => {
  expect(factsOf(snapshot({}))).toBe('By Holdfast · no changed files');
  expect(factsOf(snapshot({ changedFiles: 1 }))).toBe('By Holdfast · 1 changed file');
  expect(factsOf(snapshot({ changedFiles: 2, newBytes: 2048 }))).toBe(
    'By Holdfast · 2 changed files · +2 KB',
  );
});

test('a snapshot says what it lacks', () => {
  expect(factsOf(snapshot({ changedFiles: 1, duringTurn: true, missing: 2 }))).toBe(
    'By Holdfast · 1 changed file · completed during the turn · 2 files missing',
  );
});
