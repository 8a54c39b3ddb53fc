import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { writeManifestCopy } from '../../../sidecar/network/manifest-copy.ts';

let top: string;
let run: string;
beforeEach(() => {
  top = mkdtempSync(join(tmpdir(), 'holdfast-run-'));
  run = join(top, 'run');
  mkdirSync(run);
});
afterEach(() => rmSync(top, { recursive: true, force: true }));

const write = (text: string): void => writeManifestCopy(run, Buffer.from(text));
const copy = (): string => readFileSync(join(run, 'manifest.json'), 'utf8');

describe("the agent's copy of the manifest", () => {
  test('is replaced in one step, read-only, and nothing else is left', () => {
    write('one');
    const first = statSync(join(run, 'manifest.json'));
    write('two');
    expect(copy()).toBe('two');
    expect(statSync(join(run, 'manifest.json')).ino).not.toBe(first.ino);
    expect(first.mode & 0o777).toBe(0o444);
    expect(readdirSync(run)).toEqual(['manifest.json']);
  });

  test('replaces a link instead of writing where it leads', () => {
    const victim = join(top, 'victim');
    writeFileSync(victim, 'untouched');
    symlinkSync(victim, join(run, 'manifest.json'));
    write('one');
    expect(readFileSync(victim, 'utf8')).toBe('untouched');
    expect(lstatSync(join(run, 'manifest.json')).isFile()).toBe(true);
    expect(copy()).toBe('one');
  });

  test('takes the place of a directory, full or empty, and of one without rights', () => {
    mkdirSync(join(run, 'manifest.json/deep'), { recursive: true });
    chmodSync(join(run, 'manifest.json'), 0o000);
    write('one');
    expect(copy()).toBe('one');
    rmSync(join(run, 'manifest.json'));
    mkdirSync(join(run, 'manifest.json'));
    chmodSync(run, 0o500);
    write('two');
    expect(copy()).toBe('two');
    const left = readdirSync(run).filter((name) => name !== 'manifest.json');
    expect(left.every((name) => name.startsWith('gone-'))).toBe(true);
  });

  test('is never written through a run directory that is a link', () => {
    rmSync(run, { recursive: true });
    mkdirSync(join(top, 'elsewhere'));
    symlinkSync(join(top, 'elsewhere'), run);
    expect(() => write('one')).toThrow();
    expect(readdirSync(join(top, 'elsewhere'))).toEqual([]);
  });
});
