import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { copyPacks } from '../../../supervisor/snapshots/store/copy-packs.ts';
import { LineageStore } from '../../../supervisor/snapshots/store/lineage-store.ts';
import { OBJECT_KINDS } from '../../../snapshot-format/objects.ts';
import { StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-packs-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

test('a store that got some of the packs before gets the others', async () => {
  const source = await LineageStore.open(join(folder, 'source'));
  const target = await LineageStore.open(join(folder, 'target'));
  const texts = ['one', 'two', 'three'];
  const hashes = texts.map((text) => new StoredObjects().add(OBJECT_KINDS.blob, Buffer.from(text)));
  const publish = async (store: LineageStore, text: string): Promise<void> => {
    const objects = new StoredObjects();
    objects.add(OBJECT_KINDS.blob, Buffer.from(text));
    await mkdir(store.incomingDirectory, { recursive: true });
    const path = join(store.incomingDirectory, text);
    await writeFile(path, objects.pack());
    await store.publish([{ path }]);
  };
  for (const text of texts) await publish(source, text);
  await publish(target, 'two');
  let id = 0;
  const copy = () => copyPacks(source, target, () => `snp-${(id += 1)}`);
  await copy();
  for (const [at, hash] of hashes.entries())
    expect((await target.read(hash, OBJECT_KINDS.blob)).toString()).toBe(texts[at]);
  expect(target.packs).toHaveLength(3);
  await copy();
  expect(target.packs).toHaveLength(3);
  await source.close();
  await target.close();
});
