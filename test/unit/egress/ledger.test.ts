import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type EgressEvent, EgressEventSchema } from '../../../protocol/egress.ts';
import { EgressLedger, type Seen } from '../../../supervisor/trust/egress/ledger.ts';

let told: EgressEvent[];
let ledger: EgressLedger;
beforeEach(() => {
  vi.useFakeTimers();
  told = [];
  ledger = new EgressLedger({
    now: () => Date.now(),
    record: (entries) => told.push(...entries.map(({ data }) => EgressEventSchema.parse(data))),
  });
});
afterEach(() => {
  ledger.close();
  vi.useRealTimers();
});

const seen = (host: string, more: Partial<Seen> = {}): Seen => ({
  decision: 'denied',
  host,
  port: 443,
  method: 'CONNECT',
  rule: null,
  from: null,
  reason: 'no_rule',
  address: null,
  allow: host,
  bytesIn: 0,
  bytesOut: 0,
  ...more,
});
const counts = () => told.map(({ host, count }) => [host, count]);

test('the first of a kind is told at once, repeats together and ever more rarely', () => {
  ledger.add(seen('a.test'));
  expect(counts()).toEqual([['a.test', 1]]);
  for (let at = 0; at < 10; at += 1) ledger.add(seen('a.test', { bytesIn: 2, bytesOut: 1 }));
  expect(told).toHaveLength(1);
  vi.advanceTimersByTime(5000);
  expect(counts()).toEqual([
    ['a.test', 1],
    ['a.test', 10],
  ]);
  expect(told[1]).toMatchObject({ bytesIn: 20, bytesOut: 10 });
  // A program that goes on for a day: twice as long each time, up to ten minutes.
  for (let second = 0; second < 86_400; second += 1) {
    ledger.add(seen('a.test'));
    vi.advanceTimersByTime(1000);
  }
  expect(told.length).toBeLessThan(2 + 8 + 144);
  ledger.close();
  expect(told.reduce((sum, { count }) => sum + count, 0)).toBe(11 + 86_400);
});

test('another decision, port, reason or rule is another kind; after a quiet while it is a first again', () => {
  ledger.add(seen('a.test'));
  ledger.add(seen('a.test', { port: 80 }));
  ledger.add(seen('a.test', { reason: 'denied' }));
  ledger.add(seen('a.test', { decision: 'allowed', reason: null, rule: '*.test' }));
  expect(told).toHaveLength(4);
  vi.advanceTimersByTime(5000);
  ledger.add(seen('a.test'));
  expect(told).toHaveLength(5);
});

test('what was counted elsewhere keeps its count', () => {
  ledger.add(seen('', { reason: 'too_many' }), 7);
  ledger.add(seen('', { reason: 'too_many' }), 5);
  ledger.close();
  expect(counts()).toEqual([
    ['', 7],
    ['', 5],
  ]);
});

test('host after host fills no history: beyond some they are told of as many', () => {
  for (let at = 0; at < 10_000; at += 1) ledger.add(seen(`h${String(at)}.test`));
  vi.advanceTimersByTime(3600_000);
  ledger.close();
  expect(told.length).toBeLessThan(80);
  expect(told.reduce((sum, { count }) => sum + count, 0)).toBe(10_000);
  const together = told.filter(({ host }) => host === '*').map(({ allow }) => allow);
  expect(new Set(together)).toEqual(new Set([null]));
});

test('an hour of new hosts is told of within bounds', () => {
  for (let at = 0; at < 36_000; at += 1) {
    ledger.add(seen(`h${String(at)}.test`));
    vi.advanceTimersByTime(100);
  }
  ledger.close();
  expect(told.length).toBeLessThan(200 + 3600 / 5 + 100);
  expect(told.reduce((sum, { count }) => sum + count, 0)).toBe(36_000);
});
