import { describe, expect, test } from 'vitest';
import { BaseVersions, fingerprint } from '../../../extension/files/base-versions.ts';

const FILE = 'holdfast://ses-a/workspace/notes.md';
const seen = (version: string) => ({ version, mtimeMs: Number(version.slice(1)) });
const [OLD, NEW] = [fingerprint('old'), fingerprint('new')];

function opened(): BaseVersions {
  const bases = new BaseVersions();
  bases.recordRead(FILE, seen('v1'), OLD, undefined);
  bases.recordShownText(FILE, OLD);
  return bases;
}

describe('the version that a save takes the place of', () => {
  test('is what the document was opened with', () => {
    expect(opened().get(FILE)).toEqual(seen('v1'));
  });

  test('stays when somebody else reads what is on the disk by now', () => {
    const bases = opened();
    bases.recordRead(FILE, seen('v2'), NEW, OLD);
    expect(bases.get(FILE)).toEqual(seen('v1'));
  });

  test('stays when the file is read while the document is dirty, though it has the text of before', () => {
    const bases = opened();
    bases.recordRead(FILE, seen('v2'), NEW, null);
    bases.recordRead(FILE, seen('v3'), OLD, null);
    expect(bases.get(FILE)).toEqual(seen('v1'));
  });

  test('stays at the first keystroke, which comes before the document is called dirty', () => {
    const bases = opened();
    bases.recordRead(FILE, seen('v2'), NEW, OLD);
    bases.recordShownText(FILE, fingerprint('x old'));
    expect(bases.get(FILE)).toEqual(seen('v1'));
  });

  test('moves when the document is loaded again', () => {
    const bases = opened();
    bases.recordRead(FILE, seen('v2'), NEW, OLD);
    bases.recordShownText(FILE, NEW);
    expect(bases.get(FILE)).toEqual(seen('v2'));
  });

  test('moves when a large file was touched only, and the document shows it already', () => {
    const bases = opened();
    bases.recordRead(FILE, seen('v2'), OLD, OLD);
    expect(bases.get(FILE)).toEqual(seen('v2'));
  });

  test('is what was written', () => {
    const bases = opened();
    bases.set(FILE, seen('v5'));
    expect(bases.get(FILE)).toEqual(seen('v5'));
  });

  test('is what was read last where texts cannot be compared', () => {
    const bases = opened();
    bases.recordRead(FILE, seen('v2'), NEW, fingerprint('something else'));
    bases.useLatestRead(FILE);
    expect(bases.get(FILE)).toEqual(seen('v2'));
  });

  test('is kept for open documents however many files are read', () => {
    const bases = opened();
    for (let number = 0; number < 2_000; number += 1)
      bases.recordRead(`${FILE}${number}`, seen('v1'), OLD, undefined);
    expect(bases.get(FILE)).toEqual(seen('v1'));
  });
});

test('texts are equal that an editor shows alike', () => {
  expect(fingerprint('\ufeffa\r\nb\rc\n')).toBe(fingerprint('a\nb\nc\n'));
  expect(fingerprint('a\nb')).not.toBe(fingerprint('a\nb\n'));
});
