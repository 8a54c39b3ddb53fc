import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { closestName } from '../../../supervisor/profiles/problems.ts';
import { findProfileWarnings } from '../../../protocol/profile-validation.ts';
import { checkProfile, readProfile } from '../../../supervisor/profiles/read.ts';

const GOOD = 'name: counter\nagent: { protocol: handler, entry: agent.py }\n';

function refusal(text: string): HoldfastError {
  try {
    checkProfile(text);
  } catch (error) {
    if (error instanceof HoldfastError) return error;
    throw error;
  }
  throw new Error('it was accepted');
}

describe('a valid profile', () => {
  test('the smallest one gets default values', () => {
    expect(checkProfile(GOOD)).toMatchObject({
      name: 'counter',
      persistence: 'ephemeral',
      runtime: 'default',
    });
  });

  test('sizes are bytes and durations ms; anchors may be used', () => {
    const text = `${GOOD}limits: { memory: 2GiB }\nidle: { pause: &t 5m, stop: *t }\n`;
    expect(checkProfile(text)).toMatchObject({
      limits: { memory: 2 ** 31 },
      idle: { pause: 300_000, stop: 300_000 },
    });
  });
});

describe('an invalid profile gives position and reason', () => {
  test.each<[string, string, number, number, RegExp]>([
    ['broken YAML', 'name: counter\nagent: [1, 2\n', 3, 1, /sequence/i],
    ['a tab', 'name: counter\n\tagent: 1\n', 2, 1, /tabs/i],
    ['a key twice', 'name: a\nname: b\n', 2, 1, /unique/],
    [
      'an unknown key',
      `${GOOD}persistance: persistent\n`,
      3,
      1,
      /unknown key "persistance"; did you mean "persistence"/,
    ],
    [
      'an unknown key without a similar one',
      `${GOOD}colour: red\n`,
      3,
      1,
      /unknown key "colour"; known keys: name, image/,
    ],
    [
      'a key of another kind of agent',
      'name: c\nagent: { protocol: handler, entry: a.py, command: [x] }\n',
      2,
      42,
      /known keys: protocol, entry, timeout/,
    ],
    [
      'a nested key',
      `${GOOD}limits: { cpu: 2 }\n`,
      3,
      11,
      /unknown key "cpu" in "limits"; did you mean "cpus"/,
    ],
    ['a wrong value', `${GOOD}persistence: for ever\n`, 3, 14, /"persistence" is "for ever"/],
    ['a number for a duration', `${GOOD}idle: { pause: 5 }\n`, 3, 16, /"idle.pause" is 5, expected text/],
    [
      'a size without a unit',
      `${GOOD}limits: { memory: "4" }\n`,
      3,
      19,
      /"limits.memory" is "4": a size such as 512MiB/,
    ],
    [
      'an unknown agent protocol',
      'name: c\nagent: { protocol: magic }\n',
      2,
      20,
      /"magic", expected "handler", "command", "acp"/,
    ],
    ['a missing agent', 'name: c\n', 1, 1, /"agent" is missing/],
    ['a name that is no label', `name: Counter_1\n${GOOD.slice(14)}`, 1, 7, /lower-case letters/],
    ['an unknown tag', 'name: !secret x\n', 1, 7, /tag/],
    ['two documents', `${GOOD}---\n${GOOD}`, 3, 1, /one document/],
    ['a list', '- a\n', 1, 1, /the file is a list, expected a mapping/],
    ['nothing', '', 1, 1, /the file is empty/],
    ['nesting without an end', '['.repeat(50_000), 1, 1, /nested too deeply/],
  ])('%s', (_, text, line, column, message) => {
    const error = refusal(text);
    expect(error.code).toBe('profile_invalid');
    expect(error.details).toMatchObject({ file: 'holdfast.yaml', line, column });
    expect(error.why).toMatch(message);
    expect(error.why).toContain(`holdfast.yaml:${line}:${column}: `);
  });

  test('several problems are all reported, in the order of the file', () => {
    const { why } = refusal('name: C\nagent: { protocol: handler }\nlimits: { cpus: many }\n');
    expect(why).toMatch(/:1:7: .*; holdfast\.yaml:2:8: "agent\.entry" is missing; holdfast\.yaml:3:17: /);
  });

  test('aliases that would expand too far are refused quickly', () => {
    const levels = Array.from({ length: 12 }, (_, at) => `a${at + 1}: &a${at + 1} [${`*a${at},`.repeat(9)}]`);
    const before = process.cpuUsage();
    expect(refusal(`a0: &a0 [x]\n${levels.join('\n')}\n`).why).toMatch(/alias/);
    // CPU time in µs, independent of other load.
    expect(process.cpuUsage(before).user).toBeLessThan(2_000_000);
  });

  test('__proto__ is an unknown key like any other', () => {
    expect(refusal(`${GOOD}__proto__: { polluted: true }\n`).why).toContain('unknown key "__proto__"');
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  });
});

describe('a profile whose sandbox could never start is refused, with the place', () => {
  test.each<[string, string, RegExp]>([
    ['memory that no sandbox starts with', 'limits: { memory: 1B }', /at least 32MiB/],
    ['memory just below', 'limits: { memory: 31.9MiB }', /at least 32MiB/],
    ['memory that no engine can count', 'limits: { memory: 999999999TiB }', /at most 8191TiB/],
    ['output that nobody can count', 'limits: { output: 999999999TiB }', /at most 8191TiB/],
    ['a workspace that nobody can count', 'workspace: { limit: 8192TiB }', /at most 8191TiB/],
    ['hardly any processor', 'limits: { cpus: 0.001 }', /at least 0.01/],
    ['NUL in a variable', 'env: { A: "a\\0b" }', /NUL/],
    ['a variable of ours', 'env: { HOLDFAST_RUN: /evil }', /reserved/],
    ['a variable of ours in other letters', 'env: { holdfast_busybox: /evil }', /reserved/],
    ['a variable that no program can be given', `env: { A: ${'x'.repeat(131_070)} }`, /128 KiB/],
    ['NUL in a folder', 'workspace: { seed: "a\\0b" }', /NUL/],
    ['NUL in a check', 'checks: { test: "a\\0b" }', /NUL/],
  ])('%s', (_, line, message) => {
    const error = refusal(`${GOOD}${line}\n`);
    expect(error.code).toBe('profile_invalid');
    expect(error.why).toMatch(message);
    expect(error.details).toMatchObject({ line: 3, problems: [{ line: 3 }] });
    expect(error.details?.['column']).toBeGreaterThan(1);
  });

  test('NUL in a command', () => {
    const error = refusal('name: c\nagent: { protocol: command, command: [sh, "-c\\0"] }\n');
    expect([error.code, error.details]).toMatchObject(['profile_invalid', { line: 2, column: 43 }]);
  });

  test.each([
    'limits: { memory: 32MiB, cpus: 0.01, pids: 16, output: 8191TiB }',
    `env: { A: ${'x'.repeat(131_069)}, B: "two\\nlines" }`,
  ])('%.60s: accepted', (line) => {
    expect(checkProfile(`${GOOD}${line}\n`)).toBeDefined();
  });
});

describe('warnings about egress rules and limits', () => {
  const warnings = (rules: string, memory: number | null = null): string[] =>
    findProfileWarnings(checkProfile(`${GOOD}${rules}\n`), memory);

  test.each(['*.co', '*.com:8443', '*.co.uk', '*.com.au', '*.github.io', '*.amazonaws.com'])(
    '%s: a warning that names it',
    (host) => {
      expect(warnings(`egress: [{ host: "${host}" }]`)).toEqual([expect.stringContaining(host)]);
    },
  );

  test.each(['*.example.com', 'co', 'github.io', 'user.github.io', '*.user.github.io', '*.bbc.co.uk'])(
    '%s: none',
    (host) => {
      expect(warnings(`egress: [{ host: "${host}" }]`)).toEqual([]);
    },
  );

  test('a rule that only silences a denial: none', () => {
    expect(warnings('egress: [{ host: "*.co", quiet: true }]')).toEqual([]);
  });

  test.each([
    ['BASE_URL: "http://127.0.0.1:11434/v1"', 'http://host.holdfast.internal:11434'],
    ['BASE_URL: "http://localhost:8080"', 'host: "host.holdfast.internal:8080"'],
    ['DATABASE: "postgres://me:secret@[::1]:5432/db"', 'postgres://host.holdfast.internal:5432'],
  ])(
    'env with a base URL of the sandbox’s own loopback, %s: a warning with the name that works',
    (line, way) => {
      const [warning] = warnings(`env: { ${line} }`);
      expect(warning).toContain(way);
      expect(warning).not.toContain('secret');
    },
  );

  test('env without a loopback address, or with the host machine’s name: none', () => {
    const env =
      'env: { A: "http://127.0.0.1.example.com/", B: "http://host.holdfast.internal:1", C: localhost }';
    expect(warnings(env)).toEqual([]);
  });

  test('an egress rule for a loopback address: a warning with the name that works', () => {
    expect(warnings('egress: [{ host: "127.0.0.1:8080" }]')).toEqual([
      expect.stringContaining('host.holdfast.internal:8080'),
    ]);
  });

  test('memory beyond the machine’s: a warning, where the machine is known', () => {
    expect(warnings('limits: { memory: 4GiB }', 2 ** 31)).toEqual([expect.stringContaining('2048MiB')]);
    expect(warnings('limits: { memory: 2GiB }', 2 ** 31)).toEqual([]);
    expect(warnings('limits: { memory: 4GiB }')).toEqual([]);
    expect(warnings('', 2 ** 20)).toEqual([]);
  });
});

test.each([
  ['workspace: { scope: profile }', 'workspace.scope: profile'],
  ['egress: [{ host: api.example.org, methods: [GET] }]', 'egress.methods'],
  ['egress: [{ host: api.example.org, path: /v1/ }]', 'egress.path'],
  ['retention: { events: 1d }', 'retention'],
])('%s is parsed and refused as not supported', (line, field) => {
  const error = refusal(`${GOOD}${line}\n`);
  expect(error.code).toBe('not_supported');
  expect(error.details).toMatchObject({ fields: [field] });
  expect(error.next).toContain(field);
});

test('the nearest name is found by insertions, deletions, replacements and swaps', () => {
  const names = ['agent', 'image', 'idle', 'name'];
  expect(['agnet', 'imge', 'idel', 'nmae', 'agentt', 'zzz'].map((key) => closestName(key, names))).toEqual([
    'agent',
    'image',
    'idle',
    'name',
    'agent',
    undefined,
  ]);
});

describe('the file', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-read-'));
  });
  afterEach(() => {
    rmSync(folder, { recursive: true, force: true });
  });
  const file = (name = 'holdfast.yaml') => join(folder, name);

  test('that is missing: an example to write', async () => {
    await expect(readProfile(folder)).rejects.toMatchObject({
      code: 'profile_invalid',
      next: expect.stringContaining('entry: agent.py') as string,
    });
  });

  test('named holdfast.yml: rename it', async () => {
    writeFileSync(file('holdfast.yml'), GOOD);
    await expect(readProfile(folder)).rejects.toMatchObject({ next: 'rename holdfast.yml to holdfast.yaml' });
  });

  test('that is a folder, a named pipe, too large, or not text', async () => {
    execFileSync('mkfifo', [file()]);
    await expect(readProfile(folder)).rejects.toMatchObject({ why: 'it is not a regular file' });
    rmSync(file());
    writeFileSync(file(), 'x'.repeat(300_000));
    await expect(readProfile(folder)).rejects.toMatchObject({ code: 'profile_invalid', why: /at most/ });
    writeFileSync(file(), Buffer.from([0x6e, 0xff, 0xfe]));
    await expect(readProfile(folder)).rejects.toMatchObject({ why: 'it is not UTF-8 text' });
  });

  test('a missing folder, or a path that is not a folder', async () => {
    await expect(readProfile(join(folder, 'nowhere'))).rejects.toMatchObject({ code: 'not_found' });
    writeFileSync(file('plain'), '');
    await expect(readProfile(file('plain'))).rejects.toMatchObject({
      code: 'not_found',
      why: 'it is not a folder',
    });
  });
});
