import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { type EgressEvent, EgressEventSchema } from '../../../protocol/egress.ts';
import {
  EgressEventAggregator,
  type EgressObservation,
} from '../../../supervisor/egress/event-aggregator.ts';

let told: EgressEvent[];
let aggregator: EgressEventAggregator;
beforeEach(() => {
  vi.useFakeTimers();
  told = [];
  aggregator = new EgressEventAggregator({
    now: () => Date.now(),
    record: (entries) => told.push(...entries.map(({ data }) => EgressEventSchema.parse(data))),
  });
});
afterEach(() => {
  aggregator.close();
  vi.useRealTimers();
});

const seen = (host: string, more: Partial<EgressObservation> = {}): EgressObservation => ({
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

test('the first of a kind is reported at once, repeats are aggregated over growing windows', () => {
  const allowed = { decision: 'allowed', reason: null, rule: 'a.test' } as const;
  aggregator.add(seen('a.test', allowed));
  expect(counts()).toEqual([['a.test', 1]]);
  for (let at = 0; at < 10; at += 1) aggregator.add(seen('a.test', { ...allowed, bytesIn: 2, bytesOut: 1 }));
  expect(told).toHaveLength(1);
  vi.advanceTimersByTime(5000);
  expect(counts()).toEqual([
    ['a.test', 1],
    ['a.test', 10],
  ]);
  expect(told[1]).toMatchObject({ bytesIn: 20, bytesOut: 10 });
  // A program that runs for a day: windows double up to ten minutes.
  for (let second = 0; second < 86_400; second += 1) {
    aggregator.add(seen('a.test', allowed));
    vi.advanceTimersByTime(1000);
  }
  expect(told.length).toBeLessThan(2 + 8 + 144);
  aggregator.close();
  expect(told.reduce((sum, { count }) => sum + count, 0)).toBe(11 + 86_400);
});

test('another decision, port, reason or rule is another kind; after an idle window it is reported at once again', () => {
  const failed = { decision: 'failed', reason: 'not_reached' } as const;
  aggregator.add(seen('a.test', failed));
  aggregator.add(seen('a.test', { ...failed, port: 80 }));
  aggregator.add(seen('a.test', { ...failed, reason: 'not_resolved' }));
  aggregator.add(seen('a.test', { decision: 'allowed', reason: null, rule: '*.test' }));
  expect(told).toHaveLength(4);
  vi.advanceTimersByTime(5000);
  aggregator.add(seen('a.test', failed));
  expect(told).toHaveLength(5);
});

test('a denied host is reported once per turn for all ports, and its count when the next turn begins', () => {
  for (let turn = 0; turn < 3; turn += 1) {
    aggregator.beginTurn();
    for (let at = 0; at < 13; at += 1) {
      aggregator.add(seen('telemetry.test', { port: at % 2 === 0 ? 443 : 80 }));
      vi.advanceTimersByTime(400);
    }
    aggregator.add(seen('other.test'));
  }
  aggregator.close();
  expect(counts()).toEqual([
    ['telemetry.test', 1],
    ['other.test', 1],
    ['telemetry.test', 12],
    ['telemetry.test', 1],
    ['other.test', 1],
    ['telemetry.test', 12],
    ['telemetry.test', 1],
    ['other.test', 1],
    ['telemetry.test', 12],
  ]);
});

test('an observation with a count keeps it', () => {
  aggregator.add(seen('', { reason: 'too_many' }), 7);
  aggregator.add(seen('', { reason: 'too_many' }), 5);
  aggregator.close();
  expect(counts()).toEqual([
    ['', 7],
    ['', 5],
  ]);
});

test('many different hosts do not fill the history: beyond a limit they are aggregated', () => {
  for (let at = 0; at < 10_000; at += 1) aggregator.add(seen(`h${String(at)}.test`));
  vi.advanceTimersByTime(3600_000);
  aggregator.close();
  expect(told.length).toBeLessThan(210);
  expect(told.reduce((sum, { count }) => sum + count, 0)).toBe(10_000);
  const together = told.filter(({ host }) => host === '*').map(({ allow }) => allow);
  expect(new Set(together)).toEqual(new Set([null]));
});

test('an hour of new hosts gives a bounded number of events', () => {
  for (let at = 0; at < 36_000; at += 1) {
    aggregator.add(seen(`h${String(at)}.test`));
    vi.advanceTimersByTime(100);
  }
  aggregator.close();
  expect(told.length).toBeLessThan(200 + 3600 / 5 + 100);
  expect(told.reduce((sum, { count }) => sum + count, 0)).toBe(36_000);
});
