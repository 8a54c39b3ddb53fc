import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { LogFile } from '../../../supervisor/base/log.ts';
import { redact } from '../../../supervisor/base/log-redaction.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-log-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const lines = (name: string): Record<string, unknown>[] =>
  readFileSync(join(folder, name), 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);

describe('the log', () => {
  test('has a JSON object a line, and only its owner may read it', () => {
    const log = new LogFile({ path: join(folder, 'a.log'), now: () => new Date(0) });
    log.child('engine').info('connected', { version: '20.10' });
    log.child('engine').debug('not at this level');
    log.close();
    expect(lines('a.log')).toEqual([
      {
        time: '1970-01-01T00:00:00.000Z',
        level: 'info',
        module: 'engine',
        message: 'connected',
        version: '20.10',
      },
    ]);
    expect(statSync(join(folder, 'a.log')).mode & 0o777).toBe(0o600);
  });

  test('rotates by size, keeps as many files as it may, and loses no line in between', () => {
    const log = new LogFile({ path: join(folder, 'a.log'), maxBytes: 2000, files: 3 });
    for (let at = 0; at < 60; at += 1) log.child('x').info('line', { at });
    log.close();
    expect(readdirSync(folder).sort()).toEqual(['a.log', 'a.log.1', 'a.log.2']);
    const kept = ['a.log.2', 'a.log.1', 'a.log'].flatMap(lines).map(({ at }) => Number(at));
    expect(kept.at(-1)).toBe(59);
    expect(kept).toEqual(Array.from({ length: kept.length }, (_, index) => 60 - kept.length + index));
    for (const name of readdirSync(folder))
      expect(statSync(join(folder, name)).size).toBeLessThanOrEqual(2000);
  });

  test('continues in an existing file', () => {
    for (const message of ['one', 'two']) {
      const log = new LogFile({ path: join(folder, 'a.log') });
      log.child('x').info(message);
      log.close();
    }
    expect(lines('a.log').map(({ message }) => message)).toEqual(['one', 'two']);
  });

  test('that cannot be written loses lines, says how many later, and never throws', () => {
    const log = new LogFile({ path: join(folder, 'later/a.log') });
    log.child('x').info('lost');
    log.child('x').info('lost too');
    const missing = new LogFile({ path: join(folder, 'b.log') });
    missing.close();
    rmSync(folder, { recursive: true, force: true });
    log.child('x').info('and this');
    folder = mkdtempSync(join(tmpdir(), 'holdfast-log-'));
    log.close();

    const full = new LogFile({ path: '/dev/full' });
    full.child('x').error('no space');
    full.close();
  });

  test('says how many lines are missing once it can be written again', async () => {
    const { mkdirSync } = await import('node:fs');
    const log = new LogFile({ path: join(folder, 'later/a.log') });
    log.child('x').info('lost');
    log.child('x').info('lost too');
    mkdirSync(join(folder, 'later'));
    log.child('x').info('there');
    log.close();
    expect(lines('later/a.log')).toMatchObject([
      { message: 'log lines were lost', lost: 2 },
      { message: 'there' },
    ]);
  });

  test('a huge value makes no huge line', () => {
    const log = new LogFile({ path: join(folder, 'a.log') });
    log.child('x').error('large', {
      list: Array.from({ length: 500 }, () => 'y'.repeat(5000)),
      text: 'z'.repeat(2 ** 20),
    });
    log.close();
    expect(statSync(join(folder, 'a.log')).size).toBeLessThan(20_000);
    expect(lines('a.log')).toHaveLength(1);
  });

  test('an error has what a client that started us needs: code, message, why', () => {
    const log = new LogFile({ path: join(folder, 'a.log') });
    const error = new HoldfastError('home_newer', 'The home is newer', { why: 'version 9' });
    log.child('daemon').error('the supervisor could not start', { error });
    log.close();
    expect(lines('a.log')[0]).toMatchObject({
      level: 'error',
      error: { code: 'home_newer', message: 'The home is newer', why: 'version 9' },
    });
  });
});

describe('what a log may not hold', () => {
  test.each([
    'token',
    'accessToken',
    'Authorization',
    'password',
    'clientSecret',
    'api_key',
    'privateKey',
    'key',
    'cookie',
  ])('the value of %s', (key) => {
    expect(JSON.stringify(redact({ deep: { [key]: 'hunter2hunter2' } }))).not.toContain('hunter2');
  });

  test.each(['params', 'env', 'input', 'prompt', 'output', 'argv', 'stdout', 'result'])(
    '%s, which is the person’s and the agent’s',
    (key) => {
      expect(JSON.stringify(redact([{ [key]: { anything: 'private words' } }]))).not.toContain(
        'private words',
      );
    },
  );

  test('secrets in running text', () => {
    const text =
      'asked https://ada:s3cr3t-word@registry.example.org/v2 with Authorization: Bearer abcdefgh12345678';
    const shown = JSON.stringify(redact({ error: new Error(text, { cause: new Error(text) }) }));
    expect(shown).not.toContain('s3cr3t-word');
    expect(shown).not.toContain('abcdefgh12345678');
    expect(shown).toContain('registry.example.org');
  });

  test('cycles and odd values end', () => {
    const cycle: Record<string, unknown> = {
      big: 10n,
      when: new Date(Number.NaN),
      bytes: Buffer.alloc(9),
      f: () => 1,
    };
    cycle['self'] = cycle;
    expect(JSON.stringify(redact(cycle))).toContain('[deeper]');
    const error = new Error('round');
    error.cause = error;
    expect(JSON.stringify(redact(error)).length).toBeLessThan(30_000);
  });
});
