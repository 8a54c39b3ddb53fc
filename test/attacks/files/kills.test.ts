import { readFileSync, readdirSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { SeededRandom } from '../../fixtures/protocol/seeded-random.ts';
import { connectFiles } from '../../docker/connect-files.ts';
import { FilesFixture } from './files-fixture.ts';
import { SOAK } from '../../setup/run-length.ts';

const KILLS = SOAK ? 200 : 8;
const SIZES = [200, 300_000, 4 * 2 ** 20];
/** What the slowest of the writes takes, so that a kill at a random time meets each of its steps. */
const SPREAD_MS = 60;

let fixture: FilesFixture;
beforeAll(async () => {
  fixture = await FilesFixture.create();
});
afterAll(async () => {
  await fixture.dispose();
});

/** Content that shows where it was cut or mixed: one letter all the way, its round at both ends. */
function content(round: number, size: number): Buffer {
  const mark = `<${String(round).padStart(6, '0')}>`;
  return Buffer.from(mark + String.fromCharCode(97 + (round % 26)).repeat(size - 2 * mark.length) + mark);
}

test(
  'kill -9 of the sidecar during writes leaves the old or the new content of each file, and nothing else',
  async () => {
    const random = new SeededRandom(7);
    const path = (size: number): string => `/workspace/file-${size}`;
    for (const size of SIZES) {
      const bytes = content(0, size);
      await fixture.files.call('files/write', { path: path(size), create: true }, { bytes });
    }
    const acknowledged = new Map(SIZES.map((size) => [size, 0]));
    let files = fixture.files;
    for (let kill = 1; kill <= KILLS; kill += 1) {
      const tried = new Map<number, number>();
      const writers = SIZES.map(async (size) => {
        for (let round = kill * 1000; ; round += 1) {
          tried.set(size, round);
          const bytes = content(round, size);
          await files.call('files/write', { path: path(size), overwrite: true }, { bytes });
          acknowledged.set(size, round);
        }
      });
      const ended = Promise.allSettled(writers);
      await sleep(random.below(100 + SPREAD_MS));
      await fixture.pair.replaceSidecar();
      await ended;
      files.close();
      files = await connectFiles(fixture.pair);
      for (const size of SIZES) {
        const { bytes } = await files.call('files/read', { path: path(size) });
        const round = Number(bytes.toString('latin1', 1, 7));
        expect([size, bytes.equals(content(round, size))]).toEqual([size, true]);
        // What was acknowledged is there, unless the write after it was done as well.
        expect([acknowledged.get(size), tried.get(size)]).toContain(round);
        // It stays, also where the next kill comes before any write was acknowledged.
        acknowledged.set(size, round);
      }
      expect(readdirSync(fixture.pair.path('workspace')).sort()).toEqual(
        SIZES.map((size) => `file-${size}`).sort(),
      );
      expect(readdirSync(fixture.pair.path('control/entries'))).toEqual([]);
    }
    files.close();
  },
  SOAK ? 3_600_000 : 120_000,
);

test('an upload whose sidecar is killed was never there', async () => {
  const files = await connectFiles(fixture.pair);
  const { upload } = (await files.call('files/begin', { path: '/workspace/half', create: true })).result;
  await files.call('files/append', { upload, offset: 0 }, { bytes: Buffer.alloc(2 ** 20) });
  await fixture.pair.replaceSidecar();
  expect(readdirSync(fixture.pair.path('workspace'))).not.toContain('half');
  expect(fixture.listTemporaryFiles()).toEqual([]);
  files.close();
});

test('a client that goes away in the middle of an upload leaves nothing', async () => {
  const files = await connectFiles(fixture.pair);
  await files.call('files/write', { path: '/workspace/kept', create: true }, { bytes: Buffer.from('old') });
  const { upload } = (await files.call('files/begin', { path: '/workspace/kept', overwrite: true })).result;
  await files.call('files/append', { upload, offset: 0 }, { bytes: Buffer.alloc(2 ** 20) });
  files.close();
  await files.closed;
  expect(readFileSync(fixture.pair.path('workspace/kept'), 'utf8')).toBe('old');
  expect(fixture.listTemporaryFiles()).toEqual([]);
});
