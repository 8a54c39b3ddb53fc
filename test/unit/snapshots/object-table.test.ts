import { expect, test } from 'vitest';
import { hashOf, OBJECT_KINDS } from '../../../snapshot-format/objects.ts';
import { PackIndex } from '../../../snapshot-format/pack-index.ts';
import { ObjectTable } from '../../../supervisor/snapshots/store/object-table.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';
import { memoryFile, StoredObjects } from '../../fixtures/snapshots/stored-objects.ts';

const { blob } = OBJECT_KINDS;
const seed = seedOfRun('object-table');

/** A pack of blobs, each of which is one of these numbers as text. */
async function packOf(numbers: Iterable<number>): Promise<PackIndex> {
  const objects = new StoredObjects();
  for (const number of numbers) objects.add(blob, Buffer.from(String(number)));
  return await PackIndex.read(memoryFile(objects.pack()));
}

function hash(number: number): Buffer {
  return hashOf(blob, Buffer.from(String(number)));
}

test('every object is found in the last pack that holds it, and no other object is found, as packs come and go', async () => {
  const random = new SeededRandom(seed);
  const table = new ObjectTable();
  let packs: PackIndex[] = [];
  const hashes = Array.from({ length: 4000 }, (_, number) => hash(number));
  const holds = (): void => {
    const wrong = hashes.flatMap((wanted, number) => {
      const pack = packs.findLastIndex((index) => index.find(wanted) !== null);
      const place = table.find(wanted);
      const isRight = place === null ? pack === -1 : packs[pack]?.hashAt(place.index).equals(wanted) === true;
      return isRight && (place?.pack ?? -1) === pack ? [] : [number];
    });
    expect(wrong).toEqual([]);
  };
  for (let round = 0; round < 12; round += 1) {
    for (let added = 0; added < 4; added += 1) {
      const pack = await packOf(
        Array.from({ length: 1 + random.below(random.pick([3, 60, 400])) }, () => random.below(3500)),
      );
      packs.push(pack);
      table.add(pack);
    }
    holds();
    if (random.below(3) > 0) continue;
    packs = packs.filter(() => random.below(2) === 0);
    table.replace(packs);
    holds();
  }
});

test('a lookup does not take longer with more packs', async () => {
  const packs = await Promise.all(Array.from({ length: 600 }, (_, at) => packOf([at])));
  const table = new ObjectTable();
  for (const pack of packs) table.add(pack);
  let compared = 0;
  for (const pack of packs) {
    const { hasHashAt } = pack;
    pack.hasHashAt = (index, wanted) => {
      compared += 1;
      return hasHashAt.call(pack, index, wanted);
    };
  }
  for (let number = 0; number < 1200; number += 1) table.find(hash(number));
  // Once for each that is there; others are told by their first bytes.
  expect(compared).toBe(600);
});
