import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Directory } from '../../../sidecar/files/directory.ts';
import { TemporaryEntries } from '../../../sidecar/files/temporary-entries.ts';
import { contentVersion } from '../../../sidecar/files/version.ts';
import { WorkspaceFiles } from '../../../sidecar/files/workspace-files.ts';
import { type ExpectedFile, NOT_CREATED, WriteIntents } from '../../../sidecar/files/write-intents.ts';

describe('an interrupted write is finished or undone by the next sidecar', () => {
  let top: string;
  let folder: string;
  beforeEach(() => {
    top = mkdtempSync(join(tmpdir(), 'holdfast-intents-'));
    folder = join(top, 'workspace', 'src');
    mkdirSync(folder, { recursive: true });
  });
  afterEach(() => {
    rmSync(top, { recursive: true, force: true });
  });

  /** As the moment was when the sidecar died: what has the name, what has the temporary one, and which of them is the new content. */
  async function after(
    named: string,
    temporary: string | null,
    stagedIs: 'named' | 'temporary',
    expected: ExpectedFile,
  ): Promise<{ content: string; names: string[]; notes: string[] }> {
    const intents = new WriteIntents(new TemporaryEntries(join(top, 'control')));
    const name = intents.newName();
    writeFileSync(join(folder, 'a'), named);
    if (temporary !== null) writeFileSync(join(folder, name.toString()), temporary);
    const { dev, ino } = statSync(join(folder, stagedIs === 'named' ? 'a' : name.toString()), {
      bigint: true,
    });
    {
      using directory = Directory.open(folder);
      intents.register({ directory, name }, Buffer.from('a'), `${dev}:${ino}`, expected);
    }
    const files = new WorkspaceFiles({ workspace: join(top, 'workspace'), control: join(top, 'control') });
    await files.recover();
    files.close();
    return {
      content: readFileSync(join(folder, 'a'), 'utf8'),
      names: readdirSync(folder),
      notes: readdirSync(join(top, 'control', 'entries')),
    };
  }
  const old: ExpectedFile = { kind: 'content', version: contentVersion(Buffer.from('old')) };

  test('before the swap: the old content stays', async () => {
    expect(await after('old', 'new', 'temporary', old)).toEqual({ content: 'old', names: ['a'], notes: [] });
  });

  test('after the swap of the expected file: the new content stays', async () => {
    expect(await after('new', 'old', 'named', old)).toEqual({ content: 'new', names: ['a'], notes: [] });
    expect(await after('new', 'whatever', 'named', { kind: 'anything' })).toMatchObject({
      content: 'new',
      names: ['a'],
    });
  });

  test("after the swap of somebody's edit: the edit goes back", async () => {
    expect(await after('new', 'agent edit', 'named', old)).toEqual({
      content: 'agent edit',
      names: ['a'],
      notes: [],
    });
  });

  test('with nothing left: nothing changes', async () => {
    expect(await after('new', null, 'named', old)).toEqual({ content: 'new', names: ['a'], notes: [] });
  });

  test('a record stays valid until its replacement is complete', async () => {
    const intents = new WriteIntents(new TemporaryEntries(join(top, 'control')));
    const name = intents.newName();
    const path = join(top, 'control', 'entries', name.toString());
    using directory = Directory.open(folder);
    intents.register({ directory, name }, Buffer.from('a'), 'not made yet', { kind: 'anything' });
    const before = readFileSync(path, 'utf8');
    const fd = openSync(path, 'r');
    intents.register({ directory, name }, Buffer.from('a'), '1:1', old);
    // It was replaced, and never cut short on the way.
    expect(readFileSync(fd, 'utf8')).toBe(before);
    closeSync(fd);
    expect(readFileSync(path, 'utf8')).not.toBe(before);
    writeFileSync(`${path}.new`, '{"folder": "2f');
    expect(await after('old', 'new', 'temporary', old)).toEqual({ content: 'old', names: ['a'], notes: [] });
  });

  test('a truncated record or a missing folder is skipped', async () => {
    const entries = join(top, 'control', 'entries');
    mkdirSync(entries, { recursive: true });
    writeFileSync(join(entries, '.holdfast-write-0000000000000001'), '{"folder": "2f');
    const gone = {
      within: '1',
      folder: Buffer.from(join(top, 'workspace', 'gone')).toString('hex'),
      target: '62',
      staged: '1:1',
    };
    writeFileSync(
      join(entries, '.holdfast-write-0000000000000002'),
      JSON.stringify({ ...gone, expected: { kind: 'anything' } }),
    );
    expect((await after('new', null, 'named', old)).notes).toEqual([]);
  });

  describe('a file of somebody else under a temporary name stays', () => {
    /** `staged`: what the note says of the new content; `there`: what has the temporary name now. */
    async function left(
      staged: string,
      expected: ExpectedFile,
      there: (path: string) => void,
    ): Promise<string[]> {
      const intents = new WriteIntents(new TemporaryEntries(join(top, 'control')));
      const name = intents.newName();
      writeFileSync(join(folder, 'a'), 'old');
      there(join(folder, name.toString()));
      {
        using directory = Directory.open(folder);
        intents.register({ directory, name }, Buffer.from('a'), staged, expected);
      }
      const files = new WorkspaceFiles({ workspace: join(top, 'workspace'), control: join(top, 'control') });
      await files.recover();
      files.close();
      expect(readFileSync(join(folder, 'a'), 'utf8')).toBe('old');
      expect(readdirSync(join(top, 'control', 'entries'))).toEqual([]);
      const names = readdirSync(folder)
        .map((one) => (one === name.toString() ? 'theirs' : one))
        .toSorted();
      rmSync(join(folder, name.toString()), { recursive: true, force: true });
      return names;
    }
    const file = (path: string): void => writeFileSync(path, 'of the agent');

    test('before the file was created', async () => {
      expect(await left(NOT_CREATED, { kind: 'anything' }, file)).toEqual(['a', 'theirs']);
      expect(await left(NOT_CREATED, { kind: 'anything' }, (path) => mkdirSync(path))).toEqual([
        'a',
        'theirs',
      ]);
      expect(await left(NOT_CREATED, { kind: 'anything' }, (path) => writeFileSync(path, ''))).toEqual(['a']);
    });

    test('before the swap', async () => {
      for (const expected of [old, { kind: 'anything' }] as const) {
        expect(await left('1:1', expected, file)).toEqual(['a', 'theirs']);
        expect(await left('1:1', expected, (path) => mkdirSync(path))).toEqual(['a', 'theirs']);
      }
    });
  });
});
