import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { SeededRandom } from '../../fixtures/protocol/seeded-random.ts';
import { FilesFixture, CANARY, resultOrErrorCode, CONTROL_ENTRIES, MAX_STALL_MS } from './files-fixture.ts';
import { SOAK, soakCount } from '../../setup/run-length.ts';

/** Attempts of each kind: of those that wait for the disk, and of the others. */
const ATTEMPTS = SOAK ? { disk: 100_000, quick: 100_000 } : { disk: 200, quick: 1000 };
const MOST_SECONDS = SOAK ? '7200' : '300';
/** What may happen to somebody whose path is pulled away from under them. */
const TYPED = new Set([
  'file_not_found', 'file_unavailable', 'file_not_a_directory', 'file_is_a_directory', 'file_not_regular', 'file_exists', 'conflict',
  'directory_not_empty', 'permission_denied', 'overloaded',
]); // prettier-ignore

describe.each([
  ['the kernel resolves', []],
  ['every step is walked', ['HOLDFAST_WITHOUT_NATIVE=1']],
])(
  'names that the agent swaps for links while they are used, where %s',
  (_how, sidecarEnv) => {
    let fixture: FilesFixture;
    beforeAll(async () => {
      fixture = await FilesFixture.create(sidecarEnv);
    });
    afterAll(async () => {
      await fixture.dispose();
    });
    const read = async (path: string) => (await fixture.files.call('files/read', { path })).bytes.toString();
    const write = async (path: string, text: string) => {
      await fixture.files.call(
        'files/write',
        { path, create: true, overwrite: true },
        { bytes: Buffer.from(text) },
      );
      return 'written';
    };
    const names = async (path: string) =>
      (await fixture.files.call('files/list', { path })).result.entries.map(({ name }) => name);

    /**
     * Runs `attempt` so often while the agent swaps, and on until each outcome in `wanted` came so many times: the race was there to be
     * lost. Nothing that `isFine` does not know may come.
     */
    const race = async (
      folder: string,
      times: number,
      attempt: (round: number) => Promise<string>,
      isFine: (got: string) => boolean,
      wanted: Readonly<Record<string, number>>,
    ): Promise<void> => {
      const seen = new Map<string, number>();
      const lacking = (): string[] =>
        Object.entries(wanted).flatMap(([got, count]) => ((seen.get(got) ?? 0) < count ? [got] : []));
      const stall = await fixture.attackWhile(['swap', folder, MOST_SECONDS], () =>
        fixture.measureStall(async () => {
          const isOver = (round: number) => round >= times && (lacking().length === 0 || round >= 20 * times);
          for (let round = 0; !isOver(round); round += 1) {
            const got = await resultOrErrorCode(attempt(round));
            if (got.includes(CANARY)) throw new Error(`attempt ${round} read the canary`);
            if (!TYPED.has(got) && !isFine(got)) throw new Error(`attempt ${round} gave ${got}`);
            seen.set(got, (seen.get(got) ?? 0) + 1);
          }
        }),
      );
      expect(stall).toBeLessThan(MAX_STALL_MS);
      expect(fixture.listControlDirectory()).toEqual(CONTROL_ENTRIES);
      expect(fixture.listTemporaryFiles()).toEqual([]);
      expect(lacking()).toEqual([]);
    };

    test('reading, through the folder and by the file', async () => {
      const paths = [
        '/workspace/read/d/secret',
        '/workspace/read/l/secret',
        '/workspace/read/f',
        '/workspace/read/s',
        '/workspace/read/p',
      ];
      const random = new SeededRandom(1);
      await race(
        '/workspace/read',
        ATTEMPTS.quick,
        () => read(paths[random.below(paths.length)] ?? ''),
        (got) => got === 'inside' || got === '',
        { inside: ATTEMPTS.quick / 20, file_not_found: ATTEMPTS.quick / 20 },
      );
    });

    test('stat and list', async () => {
      await race(
        '/workspace/list',
        ATTEMPTS.quick,
        async (round) => {
          if (round % 2 === 0) return (await names('/workspace/list/d')).join();
          const { result } = await fixture.files.call('files/stat', {
            path: '/workspace/list/d/secret',
            version: true,
          });
          return `${result.size} bytes`;
        },
        (got) => got === 'secret' || got === '' || got === '6 bytes' || got === '0 bytes',
        { secret: 1, '6 bytes': 1, file_not_found: 1 },
      );
    });

    test('writing', async () => {
      const random = new SeededRandom(2);
      const paths = [
        '/workspace/write/d/secret',
        '/workspace/write/l/new',
        '/workspace/write/f',
        '/workspace/write/s',
      ];
      await race(
        '/workspace/write',
        ATTEMPTS.disk,
        () => write(paths[random.below(paths.length)] ?? '', 'inside'),
        (got) => got === 'written',
        { written: ATTEMPTS.disk / 20 },
      );
    });

    test('making folders, renaming, copying and deleting', async () => {
      await race(
        '/workspace/change',
        ATTEMPTS.disk * 4,
        async (round) => {
          const inside = `/workspace/change/${round % 8 < 4 ? 'd' : 'l'}`;
          switch (round % 4) {
            case 0:
              await fixture.files.call('files/mkdir', { path: `${inside}/made-${round}` });
              return 'made';
            case 1:
              await fixture.files.call('files/rename', {
                from: `${inside}/secret`,
                to: `${inside}/moved`,
                overwrite: true,
              });
              return 'renamed';
            case 2:
              await fixture.files.call('files/copy', {
                from: `${inside}/moved`,
                to: `/workspace/copied-${round}`,
              });
              return await read(`/workspace/copied-${round}`);
            default:
              await fixture.files.call('files/delete', { path: `${inside}/moved` });
              return 'deleted';
          }
        },
        (got) => ['made', 'renamed', 'deleted', 'inside', ''].includes(got),
        { made: 1, renamed: 1, deleted: 1 },
      );
    });

    test('removing a whole folder takes what is in it and nothing else', async () => {
      await race(
        '/workspace/remove',
        ATTEMPTS.disk,
        async () => {
          await fixture.files.call('files/delete', { path: '/workspace/remove/d', recursive: true });
          await resultOrErrorCode(fixture.files.call('files/mkdir', { path: '/workspace/remove/d' }));
          return 'removed';
        },
        (got) => got === 'removed',
        { removed: 1 },
      );
    });

    test('searching: every result is in the workspace, and nothing of the bait with the same names', async () => {
      const bait = fixture.pair.path('control/bait');
      mkdirSync(bait, { mode: 0o777 });
      for (let n = 0; n < 400; n += 1) {
        writeFileSync(join(bait, `f${String(n).padStart(3, '0')}`), `${CANARY} needle\n`, { mode: 0o666 });
      }
      let [told, skipped, searches] = [0, 0, 0];
      const stall = await fixture.attackWhile(['bait', '/workspace/search', MOST_SECONDS], () =>
        fixture.measureStall(async () => {
          // Each line that ripgrep finds is an attempt: it is told of, or caught.
          while (told + skipped < ATTEMPTS.quick || told === 0 || skipped === 0) {
            const params = { pattern: 'needle', path: '/workspace/search', hidden: true };
            const { search } = (await fixture.files.call('files/search-open', params)).result;
            for (;;) {
              const page = (await fixture.files.call('files/search-next', { search, waitMs: 10_000 })).result;
              for (const { preview } of page.lines) expect(preview).toBe('inside needle');
              told += page.lines.length;
              if (page.summary === null) continue;
              skipped += page.summary.skipped;
              break;
            }
            const found = (await fixture.files.call('files/find', { query: 'bait' })).result;
            expect(found.paths).toEqual([]);
            searches += 1;
            if (searches > ATTEMPTS.quick) throw new Error(`told ${told}, skipped ${skipped}`);
          }
        }),
      );
      rmSync(bait, { recursive: true });
      expect(stall).toBeLessThan(MAX_STALL_MS);
      expect([told > 0, skipped > 0]).toEqual([true, true]);
    });

    test('reading in pieces while the file is replaced: pieces of one version are of one file', async () => {
      const path = '/workspace/turns';
      const [piece, pieces] = [2 * 2 ** 20, 3];
      await fixture.files.call(
        'files/write',
        { path, create: true },
        { bytes: Buffer.alloc(4 * 2 ** 20, 'a') },
      );
      let [whole, conflicts] = [0, 0];
      await fixture.attackWhile(['turns', path, String(piece * pieces), MOST_SECONDS], async () => {
        const isEnough = (round: number) => !SOAK && round >= 20 && whole > 0 && conflicts > 0;
        for (let round = 0; round < soakCount(300, 5000) && !isEnough(round); round += 1) {
          let first: { version: string; letter: number | undefined } | undefined;
          for (let n = 0; n < pieces; n += 1) {
            const got = await resultOrErrorCode(
              fixture.files.call('files/read', {
                path,
                offset: n * piece,
                length: piece,
                ...(first === undefined ? {} : { ifVersion: first.version }),
              }),
            );
            if (typeof got === 'string') {
              expect(['conflict', 'file_unavailable']).toContain(got);
              conflicts += 1;
              break;
            }
            first ??= { version: got.result.version, letter: got.bytes[0] };
            const { letter } = first;
            expect(got.bytes.every((byte) => byte === letter)).toBe(true);
            if (n === pieces - 1) whole += 1;
          }
        }
      });
      expect([whole > 0, conflicts > 0]).toEqual([true, true]);
    });

    test('an editor and an agent that edit one file at the same time: no edit that was not seen is overwritten', async () => {
      const path = '/workspace/edited';
      await write(path, 'editor 00000000');
      let conflicts = 0;
      let written = 0;
      await fixture.attackWhile(['edit', path, MOST_SECONDS], async () => {
        for (let round = 1; round <= ATTEMPTS.disk; round += 1) {
          const found = await fixture.files.call('files/read', { path });
          if (!/^(agent {2}|editor )\d{8}$/.test(found.bytes.toString()) && found.bytes.length !== 0) {
            throw new Error(`a mixture was read: ${found.bytes.toString()}`);
          }
          const bytes = Buffer.from(`editor ${String(round).padStart(8, '0')}`);
          const got = await resultOrErrorCode(
            fixture.files.call('files/write', { path, ifVersion: found.result.version }, { bytes }),
          );
          if (got === 'conflict' || got === 'file_unavailable') conflicts += 1;
          else if (typeof got === 'string') throw new Error(`the write ended with ${got}`);
          else written += 1;
        }
      });
      expect(conflicts).toBeGreaterThan(0);
      expect(written).toBeGreaterThan(0);
      expect(readFileSync(fixture.pair.path('workspace/edited'), 'utf8')).toMatch(
        /^(agent {2}|editor )\d{8}$/,
      );
      expect(statSync(fixture.pair.path('workspace/edited')).nlink).toBe(1);
      expect(fixture.listTemporaryFiles()).toEqual([]);
    });
  },
  SOAK ? 7_200_000 : 120_000,
);
