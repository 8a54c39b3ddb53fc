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

describe('the base version of a document', () => {
  test('is the version with which the document was opened', () => {
    expect(opened().get(FILE)).toEqual(seen('v1'));
  });

  test('stays when another program reads a newer version', () => {
    const bases = opened();
    bases.recordRead(FILE, seen('v2'), NEW, OLD);
    expect(bases.get(FILE)).toEqual(seen('v1'));
  });

  test('stays when the file is read while the document is dirty, even if the text is the same', () => {
    const bases = opened();
    bases.recordRead(FILE, seen('v2'), NEW, null);
    bases.recordRead(FILE, seen('v3'), OLD, null);
    expect(bases.get(FILE)).toEqual(seen('v1'));
  });

  test('stays at the first keystroke, which VS Code reports before the document is dirty', () => {
    const bases = opened();
    bases.recordRead(FILE, seen('v2'), NEW, OLD);
    bases.recordShownText(FILE, fingerprint('x old'));
    expect(bases.get(FILE)).toEqual(seen('v1'));
  });

  test('changes when the document is reloaded', () => {
    const bases = opened();
    bases.recordRead(FILE, seen('v2'), NEW, OLD);
    bases.recordShownText(FILE, NEW);
    expect(bases.get(FILE)).toEqual(seen('v2'));
  });

  test('changes when a large file was only touched, and the document already shows its text', () => {
    const bases = opened();
    bases.recordRead(FILE, seen('v2'), OLD, OLD);
    expect(bases.get(FILE)).toEqual(seen('v2'));
  });

  test('is the version that was written', () => {
    const bases = opened();
    bases.set(FILE, seen('v5'));
    expect(bases.get(FILE)).toEqual(seen('v5'));
  });

  test('is the latest read if texts cannot be compared', () => {
    const bases = opened();
    bases.recordRead(FILE, seen('v2'), NEW, fingerprint('something else'));
    bases.useLatestRead(FILE);
    expect(bases.get(FILE)).toEqual(seen('v2'));
  });

  test('is retained for open documents, however many files are read', () => {
    const bases = opened();
    for (let number = 0; number < 2_000; number += 1)
      bases.recordRead(`${FILE}${number}`, seen('v1'), OLD, undefined);
    expect(bases.get(FILE)).toEqual(seen('v1'));
  });
});

test('texts that an editor shows alike have the same fingerprint', () => {
  expect(fingerprint('\ufeffa\r\nb\rc\n')).toBe(fingerprint('a\nb\nc\n'));
  expect(fingerprint('a\nb')).not.toBe(fingerprint('a\nb\n'));
});
