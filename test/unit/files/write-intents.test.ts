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
import { contentVersion } from '../../../sidecar/files/version.ts';
import { WorkspaceFiles } from '../../../sidecar/files/workspace-files.ts';
import { type Expected, WriteIntents } from '../../../sidecar/files/write-intents.ts';

describe('a write that was cut off is finished or undone by the next sidecar', () => {
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
    expected: Expected,
  ): Promise<{ content: string; names: string[]; notes: string[] }> {
    const intents = new WriteIntents(join(top, 'control', 'writes'));
    const name = intents.newName();
    writeFileSync(join(folder, 'a'), named);
    if (temporary !== null) writeFileSync(join(folder, name.toString()), temporary);
    const { dev, ino } = statSync(join(folder, stagedIs === 'named' ? 'a' : name.toString()), {
      bigint: true,
    });
    {
      using directory = Directory.at(folder);
      intents.note({ directory, name }, Buffer.from('a'), `${dev}:${ino}`, expected);
    }
    const files = new WorkspaceFiles({ workspace: join(top, 'workspace'), control: join(top, 'control') });
    await files.settle();
    files.close();
    return {
      content: readFileSync(join(folder, 'a'), 'utf8'),
      names: readdirSync(folder),
      notes: readdirSync(join(top, 'control', 'writes')),
    };
  }
  const old: Expected = { kind: 'content', version: contentVersion(Buffer.from('old')) };

  test('before the names were swapped: the old content stays', async () => {
    expect(await after('old', 'new', 'temporary', old)).toEqual({ content: 'old', names: ['a'], notes: [] });
  });

  test('after it, with the right content out: the new stays', async () => {
    expect(await after('new', 'old', 'named', old)).toEqual({ content: 'new', names: ['a'], notes: [] });
    expect(await after('new', 'whatever', 'named', { kind: 'anything' })).toMatchObject({
      content: 'new',
      names: ['a'],
    });
  });

  test("after it, with somebody's edit out: the edit goes back", async () => {
    expect(await after('new', 'agent edit', 'named', old)).toEqual({
      content: 'agent edit',
      names: ['a'],
      notes: [],
    });
  });

  test('with nothing left: nothing is done', async () => {
    expect(await after('new', null, 'named', old)).toEqual({ content: 'new', names: ['a'], notes: [] });
  });

  test('a note that is written anew holds until the new one is whole', async () => {
    const intents = new WriteIntents(join(top, 'control', 'writes'));
    const name = intents.newName();
    const path = join(top, 'control', 'writes', name.toString());
    using directory = Directory.at(folder);
    intents.note({ directory, name }, Buffer.from('a'), 'not made yet', { kind: 'anything' });
    const before = readFileSync(path, 'utf8');
    const fd = openSync(path, 'r');
    intents.note({ directory, name }, Buffer.from('a'), '1:1', old);
    // It was replaced, and never cut short on the way.
    expect(readFileSync(fd, 'utf8')).toBe(before);
    closeSync(fd);
    expect(readFileSync(path, 'utf8')).not.toBe(before);
    writeFileSync(`${path}.new`, '{"folder": "2f');
    expect(await after('old', 'new', 'temporary', old)).toEqual({ content: 'old', names: ['a'], notes: [] });
  });

  test('a note that was cut off, or a folder that has gone, is no obstacle', async () => {
    mkdirSync(join(top, 'control', 'writes'), { recursive: true });
    writeFileSync(join(top, 'control', 'writes', 'half'), '{"folder": "2f');
    const gone = {
      folder: Buffer.from(join(top, 'workspace', 'gone')).toString('hex'),
      temporary: '61',
      target: '62',
      staged: '1:1',
    };
    writeFileSync(
      join(top, 'control', 'writes', 'gone'),
      JSON.stringify({ ...gone, expected: { kind: 'anything' } }),
    );
    expect((await after('new', null, 'named', old)).notes).toEqual([]);
  });
});
