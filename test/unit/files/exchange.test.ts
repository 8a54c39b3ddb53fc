import {
  fstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { Directory } from '../../../sidecar/files/directory.ts';
import { loadNative, type Native } from '../../../sidecar/files/native.ts';
import { TemporaryEntries } from '../../../sidecar/files/temporary-entries.ts';
import { Resolver } from '../../../sidecar/files/resolver.ts';
import { contentVersion } from '../../../sidecar/files/version.ts';
import { WriteIntents } from '../../../sidecar/files/write-intents.ts';
import { FileWriter } from '../../../sidecar/files/file-writer.ts';

describe('a write while an agent changes the same file', () => {
  let top: string;
  let file: string;
  let root: Directory;
  beforeEach(() => {
    top = mkdtempSync(join(tmpdir(), 'holdfast-exchange-'));
    mkdirSync(join(top, 'workspace'));
    file = join(top, 'workspace', 'a');
    writeFileSync(file, 'old');
    root = Directory.open(join(top, 'workspace'));
  });
  afterEach(() => {
    root.close();
    rmSync(top, { recursive: true, force: true });
  });

  const agentRenames = (text: string): void => {
    writeFileSync(join(top, 'workspace', 'agent'), text);
    renameSync(join(top, 'workspace', 'agent'), file);
  };

  /** Writes `new` over `old`; the agent acts right before the first swap, and after each by its number. */
  async function write(
    before: () => void,
    after: Readonly<Record<number, () => void>>,
    how: object,
  ): Promise<string> {
    const real = await loadNative();
    if (real === null) throw new Error('there are no native calls here');
    let swaps = 0;
    const native: Native = {
      ...real,
      exchange: (...args) => {
        if (swaps === 0) before();
        real.exchange(...args);
        swaps += 1;
        after[swaps]?.();
      },
    };
    const intents = new WriteIntents(new TemporaryEntries(join(top, 'control')));
    const resolver = new Resolver(root, native);
    const target = { displayPath: '/workspace/a', locate: () => resolver.parent([Buffer.from('a')], true) };
    try {
      await new FileWriter({ native, intents }).write(target, how, Buffer.from('new'));
      return 'written';
    } catch (error) {
      if (!(error instanceof HoldfastError)) return error instanceof Error ? error.message : 'odd';
      return error.code;
    } finally {
      expect(readdirSync(join(top, 'workspace'))).toEqual(['a']);
      expect(readdirSync(join(top, 'control', 'entries'))).toEqual([]);
    }
  }
  const ifOld = { ifVersion: contentVersion(Buffer.from('old')) };
  const now = (): string => readFileSync(file, 'utf8');
  const nothing = (): void => undefined;

  test('without another change the new content is there', async () => {
    expect([await write(nothing, {}, ifOld), now()]).toEqual(['written', 'new']);
  });

  test('an edit of the same size between check and swap is a conflict and stays', async () => {
    expect([await write(() => writeFileSync(file, 'OLD'), {}, ifOld), now()]).toEqual(['conflict', 'OLD']);
  });

  test('another file in its place is a conflict and stays', async () => {
    expect([await write(() => agentRenames('agent 1'), {}, ifOld), now()]).toEqual(['conflict', 'agent 1']);
  });

  test('if our file is replaced before the swap back, the newest file stays', async () => {
    const after = { 1: () => agentRenames('agent 2') };
    expect([await write(() => agentRenames('agent 1'), after, ifOld), now()]).toEqual([
      'conflict',
      'agent 2',
    ]);
  });

  test('if it is replaced at every swap, the newest file stays', async () => {
    const after = Object.fromEntries([1, 2, 3, 4].map((n) => [n, () => agentRenames(`agent ${n + 1}`)]));
    expect([await write(() => agentRenames('agent 1'), after, ifOld), now()]).toEqual([
      'conflict',
      'agent 5',
    ]);
  });

  test('overwrite replaces any file, but not a folder', async () => {
    expect([await write(() => agentRenames('agent 1'), {}, { overwrite: true }), now()]).toEqual([
      'written',
      'new',
    ]);
    const folder = (): void => {
      rmSync(file);
      mkdirSync(file);
    };
    expect(await write(folder, {}, { overwrite: true })).toBe('file_is_a_directory');
    expect(readdirSync(file)).toEqual([]);
  });

  test('a repeated write is answered when the content and the name of the first one are on the disk', async () => {
    const native = await loadNative();
    const begun: string[] = [];
    let isFirst = true;
    const first = Promise.withResolvers<undefined>();
    /** The disk takes the entry of the first write only when it is told to. */
    const sync = async (fd: number): Promise<void> => {
      const isDirectory = fstatSync(fd).isDirectory();
      begun.push(isDirectory ? 'directory' : readFileSync(`/proc/self/fd/${fd}`, 'utf8'));
      if (!isDirectory || !isFirst) return;
      isFirst = false;
      await first.promise;
    };
    const intents = new WriteIntents(new TemporaryEntries(join(top, 'control')));
    const resolver = new Resolver(root, native);
    const target = { displayPath: '/workspace/a', locate: () => resolver.parent([Buffer.from('a')], true) };
    const writer = new FileWriter({ native, intents, sync });
    const answers: string[] = [];
    const save = (name: string): Promise<void> =>
      writer.write(target, ifOld, Buffer.from('new')).then(() => void answers.push(name));
    const one = save('first');
    await expect.poll(() => begun).toContain('directory');
    const before = begun.length;
    const again = save('repeated');
    await expect.poll(() => begun.slice(before)).toEqual(['new']);
    await sleep(20);
    expect([answers, now()]).toEqual([[], 'new']);
    first.resolve(undefined);
    await Promise.all([one, again]);
    expect(begun.slice(before)).toEqual(['new', 'directory']);
  });
});
