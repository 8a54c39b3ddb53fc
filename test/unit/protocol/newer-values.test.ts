import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { errorFromWire } from '../../../protocol/error-data.ts';
import { METHODS, NOTIFICATIONS } from '../../../protocol/methods.ts';
import { parseNewer, readNewerAs } from '../../../protocol/newer-values.ts';

const TURN = 'turn-aaaaaaaaaaaaaaaa';
const base = { at: 1, seq: 3, time: '2026-01-01T00:00:00.000Z', turnId: TURN, contents: [] };
const shown = { text: null, cut: false };
const page = (items: readonly unknown[]) => ({
  items,
  before: null,
  after: null,
  queued: [],
  total: items.length,
  seq: 3,
});

describe('what only a newer supervisor knows', () => {
  const { result } = METHODS['conversation/read'];

  test('is a mark of the conversation with its name', () => {
    const restarted = { ...base, id: 1, type: 'mark', mark: 'restarted', ...shown };
    const items = [
      restarted,
      { ...base, id: 2, type: 'mark', mark: 'teleported', to: { planet: 'Mars' }, ...shown },
      { ...base, id: 3, type: 'hologram', frames: 12, ...shown },
    ];
    expect(result.safeParse(page(items)).success).toBe(false);
    expect(parseNewer(result, page(items)).data?.items).toEqual([
      restarted,
      { ...base, id: 2, type: 'mark', mark: 'newer', name: 'teleported', ...shown },
      { ...base, id: 3, type: 'mark', mark: 'newer', name: 'hologram', ...shown },
    ]);
    const changed = { subscription: 's', items, seq: 3 };
    expect(parseNewer(NOTIFICATIONS['conversation/changed'].params, changed).data?.items).toHaveLength(3);
  });

  test('is a known value of an item whose other values are known', () => {
    const call = { ...base, id: 1, type: 'tool', call: 'c', kind: 'dream', status: 'completed', title: 'T' };
    const { data } = parseNewer(result, page([{ ...call, locations: [], ...shown }]));
    expect(data?.items).toMatchObject([{ type: 'tool', kind: 'other', title: 'T' }]);
  });

  test('leaves no trace where not even its place is known', () => {
    const { data } = parseNewer(result, page([{ type: 'hologram' }, 7, null]));
    expect(data?.items).toEqual([]);
  });

  test('is left out of a list, whose other entries are there', () => {
    const profile = { kind: 'profile', profile: 'task', version: 1 };
    const params = { changes: [{ kind: 'weather', sun: true }, profile], epoch: 1, seq: 2 };
    const changed = parseNewer(NOTIFICATIONS['host/changed'].params, {
      ...params,
      isSnapshot: false,
      isComplete: true,
    });
    expect(changed.error).toBeUndefined();
    expect(changed.data?.changes).toEqual([profile]);
  });

  test('is left out of pure listings, of checks as of events', () => {
    const check = { name: 'docker', status: 'ok', found: 'It runs', next: null };
    const checks = parseNewer(METHODS['supervisor/doctor'].result, { checks: [{ aura: 7 }, check] });
    expect(checks.data?.checks).toMatchObject([{ name: 'docker' }]);
    const listings: readonly (readonly [z.ZodType, string, object])[] = [
      [METHODS['profile/list'].result, 'profiles', {}],
      [METHODS['session/list'].result, 'sessions', { nextCursor: null }],
      [METHODS['session/events'].result, 'events', { lastSeq: 1 }],
      [METHODS['session/search'].result, 'results', { cursor: null, complete: true }],
      [NOTIFICATIONS['files/found'].params, 'lines', { token: 't' }],
    ];
    for (const [schema, name, rest] of listings)
      expect(parseNewer(schema, { ...rest, [name]: [{ of: 'Mars' }] }).data, name).toMatchObject({
        [name]: [],
      });
  });

  test('fails where others name the entries by index, or where all of them count', () => {
    const from = null;
    const start = { kind: 'start', isExact: true, turns: [], turnCount: 0, from, to: null };
    const ranges = [{ start: 0, end: 1, origin: 1 }];
    const blame = { path: 'a', version: 'v', lines: 1, ranges, nextLine: null };
    const { result } = METHODS['review/blame'];
    expect(parseNewer(result, { ...blame, origins: [start, start] }).success).toBe(true);
    expect(parseNewer(result, { ...blame, origins: [{ ...start, kind: 'oracle' }, start] }).success).toBe(
      false,
    );
    const { files } = METHODS['review/files'].result.shape;
    const { entries } = METHODS['handoff/changes'].result.shape;
    const { sizes } = METHODS['handoff/contents'].result.shape;
    for (const schema of [files, entries, sizes]) {
      expect(parseNewer(schema, []).success).toBe(true);
      expect(parseNewer(schema, [{ kind: 'hologram', path: 'a' }]).success).toBe(false);
    }
  });

  test('is an error whose reason and advice stay', () => {
    const data = { code: 'out_of_unobtainium', why: 'it is rare', next: 'dig' };
    expect(errorFromWire('No', data)).toMatchObject({ code: 'internal', why: 'it is rare', next: 'dig' });
  });

  test('is an error also where a member has a name that every object has', () => {
    const hostile = { code: 'nope', constructor: 1, toString: 2, hasOwnProperty: 3 };
    expect(errorFromWire('No', hostile)).toMatchObject({ code: 'internal', message: 'No' });
    const own = JSON.parse('{"code":"nope","__proto__":{"why":1}}') as unknown;
    expect(errorFromWire('No', own)).toMatchObject({ code: 'internal', message: 'No' });
  });

  test('is the strictest of what is known where a person decides by it', () => {
    const { risks } = METHODS['review/files'].result.shape.files.element.shape;
    expect(parseNewer(risks, ['large', 'radioactive']).data).toEqual(['large', 'executes']);
  });

  test('fails where nothing can stand for it', () => {
    const schema = z.object({ state: z.enum(['on', 'off']) });
    expect(parseNewer(schema, { state: 'dimmed' }).success).toBe(false);
    expect(parseNewer(schema, { state: 'on', more: 1 }).data).toEqual({ state: 'on' });
    const colour = readNewerAs(z.enum(['red', 'grey']), () => 'grey');
    const deep = z.object({ all: z.array(z.object({ colour: colour.nullable().optional() })) });
    expect(parseNewer(deep, { all: [{ colour: 'teal' }, { colour: null }, { colour: 5 }, {}] }).data).toEqual(
      {
        all: [{ colour: 'grey' }, { colour: null }, { colour: 'grey' }, {}],
      },
    );
  });
});
