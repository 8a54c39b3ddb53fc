import { expect, test } from 'vitest';
import {
  formatAuthority,
  parseArtifactAuthority,
  parseSessionAuthority,
  parseSnapshotAuthority,
} from '../../../protocol/links.ts';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz234567';
const ROUNDS = 500;

/** The same numbers in every run. */
function randomNumbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return (state >>> 8) % below;
  };
}

const random = randomNumbers(14);
const word = (length: number): string =>
  Array.from({ length }, () => LETTERS.charAt(random(LETTERS.length))).join('');

test('what is formatted is parsed as the same session or snapshot of the same home', () => {
  for (let round = 0; round < ROUNDS; round += 1) {
    const home = random(2) === 0 ? null : word(26);
    const session = { id: `ses-${word(16)}`, home };
    const snapshot = { id: `snp-${word(16)}`, home };
    expect(parseSessionAuthority(formatAuthority(session))).toEqual(session);
    expect(parseSnapshotAuthority(formatAuthority(snapshot))).toEqual(snapshot);
    expect(parseSessionAuthority(formatAuthority(snapshot))).toBeUndefined();
    expect(parseSnapshotAuthority(formatAuthority(session))).toBeUndefined();
    const artifact = { id: `art-${word(16)}`, home };
    expect(parseArtifactAuthority(formatAuthority(artifact))).toEqual(artifact);
    expect(parseArtifactAuthority(formatAuthority(snapshot))).toBeUndefined();
  }
});

test('text is an authority only if it is one that would be formatted', () => {
  const pieces = [
    '.',
    '-',
    'A',
    '1',
    '/',
    ':',
    '@',
    '%',
    ' ',
    'é',
    '..',
    'ses-',
    'a'.repeat(16),
    'b'.repeat(26),
    `ses-${'a'.repeat(16)}`,
  ];
  let parsed = 0;
  for (let round = 0; round < ROUNDS * 20; round += 1) {
    const text = Array.from({ length: random(5) }, () => pieces[random(pieces.length)]).join('');
    const authority = parseSessionAuthority(text);
    if (authority === undefined) continue;
    parsed += 1;
    expect(formatAuthority(authority)).toBe(text);
    expect(authority.id).toBe(text.split('.')[0]);
  }
  expect(parsed).toBeGreaterThan(10);
});

test('every change of one character is refused or names something else', () => {
  const link = { id: `ses-${word(16)}`, home: word(26) };
  const text = formatAuthority(link);
  for (let at = 0; at < text.length; at += 1) {
    for (const character of ['', '.', 'A', '0', ' ', 'a', '\n']) {
      const changed = text.slice(0, at) + character + text.slice(at + 1);
      if (changed !== text) expect(parseSessionAuthority(changed)).not.toEqual(link);
    }
  }
  for (const more of ['.', '\n', ' ', '.a', 'a']) expect(parseSessionAuthority(text + more)).toBeUndefined();
});

test('an authority is valid in a URI and in a DNS name', () => {
  const text = formatAuthority({ id: `ses-${word(16)}`, home: word(26) });
  expect(new URL(`holdfast://${text}/workspace/a`).hostname).toBe(text);
  for (const label of text.split('.')) expect(label).toMatch(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/);
});
