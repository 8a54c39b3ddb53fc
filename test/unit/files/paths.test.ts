import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { decodeName, encodeName, ESCAPE, formatPath, parsePath } from '../../../protocol/paths.ts';
import { SeededRandom } from '../../fixtures/protocol/seeded-random.ts';
import { soakCount } from '../../setup/run-length.ts';

function codeOf(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof HoldfastError) return error.code;
    throw error;
  }
  return 'none';
}

const SOAK_MS = 600_000;
const CASES = soakCount(8000, 1_000_000);

describe('names are bytes', () => {
  test.each([
    ['plain', Buffer.from('a.ts'), 'a.ts'],
    ['UTF-8', Buffer.from('naïve – 日本.txt'), 'naïve – 日本.txt'],
    ['the character that stands for what cannot be read', Buffer.from('\ufffd'), '\ufffd'],
    ['Latin-1', Buffer.from('caf\xe9', 'latin1'), `caf${ESCAPE}e9`],
    ['two that would decode alike', Buffer.from('\xff', 'latin1'), `${ESCAPE}ff`],
    ['the escape itself', Buffer.from(ESCAPE), `${ESCAPE}e2${ESCAPE}90${ESCAPE}9b`],
    ['a surrogate in three bytes', Buffer.from('eda080', 'hex'), `${ESCAPE}ed${ESCAPE}a0${ESCAPE}80`],
    ['an overlong slash', Buffer.from('c0af', 'hex'), `${ESCAPE}c0${ESCAPE}af`],
    ['a cut-off character', Buffer.from('61e282', 'hex'), `a${ESCAPE}e2${ESCAPE}82`],
    ['a newline, -rf and bidi', Buffer.from('-rf\n\u202etxt'), '-rf\n\u202etxt'],
    ['a byte-order mark', Buffer.from('\ufeffx'), '\ufeffx'],
  ])('%s', (_what, name, spelled) => {
    expect(encodeName(name)).toBe(spelled);
    expect(decodeName(spelled)).toEqual(name);
  });

  test(
    'every name has one spelling, and it survives JSON and a URI',
    () => {
      const random = new SeededRandom(1);
      const alphabet = [
        0x61, 0x2d, 0x0a, 0xe2, 0x90, 0x9b, 0xff, 0xc3, 0xa9, 0xf0, 0x9f, 0x98, 0x80, 0xed, 0xa0, 0x5c,
      ];
      for (let round = 0; round < CASES; round += 1) {
        const name = Buffer.from(
          Array.from({ length: 1 + random.below(12) }, () =>
            random.below(4) === 0 ? 1 + random.below(255) : (alphabet[random.below(16)] ?? 0),
          ),
        );
        const spelled = encodeName(name);
        const isText = Buffer.from(name.toString()).equals(name) && !name.includes(ESCAPE);
        if ((spelled === name.toString()) !== isText)
          throw new Error(`${name.toString('hex')} is spelled ${spelled}`);
        const carried = decodeURIComponent(encodeURIComponent(JSON.parse(JSON.stringify(spelled)) as string));
        if (!decodeName(carried).equals(name)) throw new Error(`${name.toString('hex')} came back otherwise`);
        if (Buffer.from(spelled, 'utf8').toString('utf8') !== spelled)
          throw new Error(`${name.toString('hex')} is no text`);
      }
    },
    SOAK_MS,
  );

  test.each([
    `${ESCAPE}61`,
    `${ESCAPE}FF`,
    `${ESCAPE}f`,
    ESCAPE,
    `${ESCAPE}c3${ESCAPE}a9`,
    '\ud800',
    `x${ESCAPE}zz`,
  ])('a second spelling is refused: %j', (spelled) => {
    expect(codeOf(() => decodeName(spelled))).toBe('invalid_params');
  });
});

describe('paths', () => {
  test('are absolute and below /workspace', () => {
    expect(parsePath('/workspace')).toEqual([]);
    expect(parsePath('/workspace/a/b c')).toEqual([Buffer.from('a'), Buffer.from('b c')]);
    expect(parsePath('/workspace/..%2fetc')).toEqual([Buffer.from('..%2fetc')]);
    expect(parsePath('/workspace/a\\..\\b')).toEqual([Buffer.from('a\\..\\b')]);
    expect(formatPath(parsePath(`/workspace/x/${ESCAPE}ff`))).toBe(`/workspace/x/${ESCAPE}ff`);
  });

  test.each([
    ['', 'invalid_params'],
    ['workspace/a', 'invalid_params'],
    ['a', 'invalid_params'],
    ['/', 'invalid_params'],
    ['/workspace/', 'invalid_params'],
    ['/workspace//a', 'invalid_params'],
    ['//workspace/a', 'invalid_params'],
    ['/workspace/./a', 'invalid_params'],
    ['/workspace/..', 'invalid_params'],
    ['/workspace/../etc/passwd', 'invalid_params'],
    ['/workspace/a\0b', 'invalid_params'],
    [`/workspace/${ESCAPE}00`, 'invalid_params'],
    [`/workspace/a${ESCAPE}2fb`, 'invalid_params'],
    [`/workspace/${ESCAPE}2e${ESCAPE}2e`, 'invalid_params'],
    [`/workspace/${'n'.repeat(256)}`, 'invalid_params'],
    [`/workspace${'/n'.repeat(2044)}`, 'invalid_params'],
    ['/etc/passwd', 'file_not_found'],
    ['/workspaces/a', 'file_not_found'],
    ['/proc/self/environ', 'file_not_found'],
  ])('path %# is refused by its code', (path, code) => {
    expect(codeOf(() => parsePath(path))).toBe(code);
  });

  test('a path has at most 4,096 bytes', () => {
    const longest = `/workspace/a${'/n'.repeat(2042)}`;
    expect(longest.length).toBe(4096);
    expect(parsePath(longest)).toHaveLength(2043);
    expect(codeOf(() => parsePath(`${longest}n`))).toBe('invalid_params');
  });

  test(
    'whatever text comes, it is a path that comes back as it was, or a typed error',
    () => {
      const random = new SeededRandom(2);
      const pieces = [
        '/',
        '..',
        '.',
        'workspace',
        '/workspace/',
        ESCAPE,
        'ff',
        '2f',
        '00',
        '\0',
        '\\',
        '%2f',
        'é',
        '\ud83d',
        '\n',
        'a',
      ];
      const seen = new Set<string>();
      for (let round = 0; round < CASES; round += 1) {
        const start = random.below(3) === 0 ? '' : '/workspace/';
        const path =
          start +
          Array.from({ length: random.below(8) }, () => pieces[random.below(pieces.length)] ?? '').join('');
        let names: Buffer[];
        try {
          names = parsePath(path);
        } catch (error) {
          if (!(error instanceof HoldfastError)) throw error;
          seen.add(error.code);
          continue;
        }
        seen.add('path');
        if (formatPath(names) !== path) throw new Error(`${JSON.stringify(path)} came back otherwise`);
        const bad = names.find(
          (name) =>
            name.length === 0 ||
            name.includes(0) ||
            name.includes(0x2f) ||
            ['.', '..'].includes(name.toString()),
        );
        if (bad !== undefined) throw new Error(`${JSON.stringify(path)} let through ${bad.toString('hex')}`);
      }
      expect([...seen].sort()).toEqual(['file_not_found', 'invalid_params', 'path']);
    },
    SOAK_MS,
  );
});
