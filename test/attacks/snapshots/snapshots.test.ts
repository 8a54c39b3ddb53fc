import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { SnapshotClient } from '../../docker/snapshots/snapshot-client.ts';
import { MemoryStore } from '../../fixtures/snapshots/memory-store.ts';
import { FilesFixture, CANARY, resultOrErrorCode, MAX_STALL_MS } from '../files/files-fixture.ts';
import { SOAK } from '../../setup/run-length.ts';

const MIB = 2 ** 20;
/** Folders of the sidecar's beside the canary. */
const OURS = new Set(['entries', 'processes', 'secret', 'sidecar.sock', 'snapshots', 'terminals']);
const ROUNDS = SOAK ? 3000 : 60;
/** How long somebody goes on swapping names, and how much of it scans may take until enough of them have met that. */
const SWAPPING_S = SOAK ? 3600 : 240;
const RACING_MS = SWAPPING_S * 900;
/** What somebody may be told whose workspace is being turned over while it is looked at. */
const TYPED = new Set(['file_unavailable', 'file_not_found', 'file_not_a_directory', 'directory_not_empty']);
/** What `find` sees of everything, the workspace itself left out: the test makes files there. */
const LOOK = `cd /workspace && find . -mindepth 1 -printf '%d %f %y %m %n %s %T@ %l\\0' | sha256sum`;

let fixture: FilesFixture;
let store: MemoryStore;
let client: SnapshotClient;

beforeAll(async () => {
  fixture = await FilesFixture.create();
  store = new MemoryStore();
  client = await SnapshotClient.open(fixture.pair, store);
});
afterAll(async () => {
  client.close();
  await fixture.dispose();
});

async function look(): Promise<string> {
  const { exitCode, output } = await fixture.pair.runInAgent(['bash', '-c', LOOK]);
  expect(exitCode).toBe(0);
  return output;
}

function expectNothingFromOutside(): void {
  expect(fixture.listControlDirectory().filter((name) => !OURS.has(name))).toEqual([]);
  expect(fixture.listTemporaryFiles()).toEqual([]);
}

async function clear(): Promise<void> {
  const script = 'chmod -R u+rwx /workspace; cd /workspace && find . -mindepth 1 -delete';
  expect((await fixture.pair.runInAgent(['bash', '-c', script])).exitCode).toBe(0);
}

describe('hostile trees', () => {
  test.each([
    ['links to everything that the sidecar alone has', ['links', '/workspace/links']],
    ['names that are hard to write', ['hard-names', '/workspace/names']],
    ['FIFOs, sockets, closed folders, and a terabyte that is not there', ['special', '/workspace/special']],
  ])('%s are restored exactly, and reveal nothing outside the workspace', async (_what, deed) => {
    await clear();
    await fixture.runAttack(...deed);
    const before = await look();
    const began = performance.now();
    const stall = await fixture.measureStall(async () => {
      const { root, complete } = await client.scan();
      expect(complete).toBe(true);
      await clear();
      await client.restore({ root });
    });
    expect(stall).toBeLessThan(MAX_STALL_MS);
    expect(performance.now() - began).toBeLessThan(30_000);
    expect(await look()).toBe(before);
    expect((await store.contents()).includes(CANARY)).toBe(false);
    expect(await fixture.pair.sidecarMemory()).toBeLessThan(400 * MIB);
    expectNothingFromOutside();
  });

  test('a tree deeper than the longest path can be restored', async () => {
    await clear();
    // A path has 4,096 bytes at most, and each level takes two.
    await fixture.runAttack('deep', '/workspace/deep', String(SOAK ? 12_000 : 2100));
    const before = await look();
    const { root } = await client.scan();
    await clear();
    await client.restore({ root });
    expect(await look()).toBe(before);
    // What is there and what is wanted differ at the very bottom only.
    const script =
      "import os\nos.chdir('/workspace/deep')\nwhile os.path.isdir('d'): os.chdir('d')\nos.unlink('bottom')";
    expect((await fixture.pair.runInAgent(['python3', '-c', script])).exitCode).toBe(0);
    expect(await client.restore({ root })).toMatchObject({ created: 1, removed: 0 });
    expect(await look()).toBe(before);
    await clear();
  });

  test.runIf(process.getuid?.() === 0)(
    'a device and a mount are rejected by their paths (needs root)',
    async () => {
      await clear();
      const folder = fixture.pair.path('workspace/f%older');
      execFileSync('mkdir', [folder]);
      execFileSync('mknod', [`${folder}/null`, 'c', '1', '3']);
      await expect(client.scan()).rejects.toMatchObject({
        code: 'file_not_regular',
        message: expect.stringContaining('/workspace/f%older/null') as string,
      });
      execFileSync('rm', ['-r', folder]);
      expect((await client.scan()).complete).toBe(true);
    },
  );
});

test.each([
  ['a file', 'echo x > $name'],
  ['a link', 'ln -s /ctl $name'],
  ['a FIFO', 'mkfifo $name'],
  ['a socket', `python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('$name')"`],
  ['a folder', 'mkdir $name; echo x > $name/x'],
])(
  '%s named like a temporary entry of the sidecar blocks no restore, is visible, and can be removed',
  async (_what, make) => {
    await clear();
    const names = ['write-restore-q', 'restore-0123456789abcdef', 'write-0123456789abcdef', 'removing-q'].map(
      (name) => `.holdfast-${name}`,
    );
    const run = async (script: string): Promise<void> => {
      const bash = await fixture.pair.runInAgent(['bash', '-euc', `cd /workspace; ${script}`]);
      expect(bash).toMatchObject({ exitCode: 0 });
    };
    await run(`echo one > one; mkdir d; echo two > d/two; for name in ${names.join(' ')}; do ${make}; done`);
    const before = await look();
    const { root } = await client.scan();
    await run('echo other > one; rm -r d');
    await client.restore({ root });
    expect(await look()).toBe(before);

    const path = '/workspace';
    const { entries } = (await fixture.files.call('files/list', { path })).result;
    expect(entries.map(({ name }) => name)).toEqual([...names, 'd', 'one'].toSorted());
    for (const name of names) {
      await fixture.files.call('files/delete', { path: `${path}/${name}`, recursive: true });
      await fixture.files.call(
        'files/write',
        { path: `${path}/${name}`, create: true },
        { bytes: Buffer.from('put') },
      );
      await fixture.files.call('files/delete', { path: `${path}/${name}` });
    }
    expect((await fixture.files.call('files/list', { path })).result.entries).toHaveLength(2);
    expectNothingFromOutside();
  },
);

describe('an attacker who swaps names during an operation', () => {
  test(
    'a scan stores no bytes from outside, and ends',
    async () => {
      await clear();
      const seen = new Map<string, number>();
      const isRacedEnough = (): boolean => (seen.get('moved') ?? 0) > ROUNDS / 4;
      const stall = await fixture.attackWhile(['swap', '/workspace/race', String(SWAPPING_S)], () =>
        fixture.measureStall(async () => {
          const until = performance.now() + RACING_MS;
          // On a busy machine the one who swaps has its turn less often, and more scans meet nothing.
          for (let round = 0; round < ROUNDS || (!isRacedEnough() && performance.now() < until); round += 1) {
            const got = await resultOrErrorCode(client.scan({ base: null, frozen: round % 4 === 3 }));
            const what = typeof got === 'string' ? got : got.changedDuringScan ? 'moved' : 'still';
            if (typeof got === 'string' && !TYPED.has(got)) throw new Error(`round ${round} gave ${got}`);
            seen.set(what, (seen.get(what) ?? 0) + 1);
          }
        }),
      );
      expect(stall).toBeLessThan(MAX_STALL_MS);
      // The race was there to be lost.
      expect(isRacedEnough(), JSON.stringify([...seen])).toBe(true);
      const contents = await store.contents();
      expect(contents.includes(CANARY)).toBe(false);
      expect(contents.includes('inside')).toBe(true);
      expectNothingFromOutside();
    },
    SOAK ? 3_700_000 : 300_000,
  );

  test(
    'a restore writes nothing outside, ends, and succeeds once the swapping stops',
    async () => {
      await clear();
      await fixture.pair.runInAgent([
        'bash',
        '-c',
        'mkdir -p /workspace/race/d/secret.d /workspace/race/e; cd /workspace/race; echo kept > d/secret; echo f > f; echo s > s; ln -s d l; chmod 600 d/secret',
      ]);
      const { root } = await client.scan();
      const before = await look();
      const seen = new Map<string, number>();
      await fixture.attackWhile(['swap', '/workspace/race', SOAK ? '3600' : '120'], async () => {
        for (let round = 0; round < ROUNDS; round += 1) {
          const got = await resultOrErrorCode(
            client.restore({ root, ...(round % 3 === 0 ? { path: '/workspace/race/d' } : {}) }),
          );
          const what = typeof got === 'string' ? got : 'restored';
          if (typeof got === 'string' && !TYPED.has(got)) throw new Error(`round ${round} gave ${got}`);
          seen.set(what, (seen.get(what) ?? 0) + 1);
        }
      });
      expect(seen.size).toBeGreaterThan(0);
      await client.restore({ root });
      expect(await look()).toBe(before);
      expectNothingFromOutside();
    },
    SOAK ? 3_700_000 : 150_000,
  );
});

describe('a damaged store', () => {
  test('a damaged object is found before anything is changed', async () => {
    await clear();
    await fixture.pair.runInAgent([
      'bash',
      '-c',
      'cd /workspace; echo one > one; echo two > two; mkdir a; echo b > a/b',
    ]);
    const other = new MemoryStore();
    const mine = await SnapshotClient.open(fixture.pair, other);
    try {
      const { root } = await mine.scan();
      await fixture.pair.runInAgent([
        'bash',
        '-c',
        'cd /workspace; echo changed > one; rm -r a two; echo new > new',
      ]);
      const before = await look();
      for (const hex of other.objects.keys()) {
        other.damagedObject = hex;
        await expect(mine.restore({ root }), hex).rejects.toMatchObject({ code: 'snapshot_damaged' });
        expect(await look(), hex).toBe(before);
      }
      other.damagedObject = null;
      await mine.restore({ root });
      expect(await look()).not.toBe(before);
    } finally {
      mine.close();
    }
    expectNothingFromOutside();
  });
});
