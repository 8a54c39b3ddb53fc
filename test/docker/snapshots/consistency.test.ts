import { existsSync } from 'node:fs';
import { mkdir, rename, stat, chown, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { expectSettled } from '../../faults/harness/expectations.ts';
import { FaultHome } from '../../faults/harness/fault-home.ts';
import { waitUntil } from '../../faults/harness/fault-fixture.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { printInSoak, soakCount } from '../../setup/run-length.ts';
import { SeededRandom, seedOfRun } from '../../fixtures/protocol/seeded-random.ts';

/** Bytes of a file: less than a page, so that nobody sees half of what is written at once. */
const SIZE = 3000;
const LINE = 10;
const NAMES = ['a', 'b'] as const;
/** Who writes, each in a folder of its own: first `a`, then `b`, always the next number. */
const WRITERS = ['agent', 'client', 'machine'] as const;
type Writer = (typeof WRITERS)[number];
type Pair = readonly [a: number, b: number];

/** Every line of a file is its number. */
const contentOf = (number: number): Buffer =>
  Buffer.from(`${String(number).padStart(LINE - 1)}\n`.repeat(SIZE / LINE));

/**
 * Of the agent's container: in place, in one write each, and without a rest, so that there is no look in which nothing
 * moves.
 */
const AGENT = `
import os, time
a, b = (os.open('/workspace/agent/' + name, os.O_WRONLY) for name in 'ab')
number = 0
while not os.path.exists('/workspace/agent/stop'):
    number += 1
    for file in (a, b):
        os.pwrite(file, (str(number).rjust(${LINE - 1}) + '\\n').encode() * ${SIZE / LINE}, 0)
    time.sleep(0.001)
open('/workspace/agent/ended', 'w').close()
`;
import { deploy } from '../../setup/deploy.ts';

let home: FaultHome;
let id: string;
let folder: string;
beforeAll(async () => {
  home = await FaultHome.create();
  await home.start();
  const project = await writeProject(join(home.path, '..'), shellProject('moments'));
  await deploy(home, project);
  ({ id } = (await home.call('session/create', { profile: 'moments' })).session);
  folder = join(home.path, 'workspaces', id);
  const { uid, gid } = await stat(folder);
  for (const writer of WRITERS) {
    await mkdir(join(folder, writer));
    await chown(join(folder, writer), uid, gid);
    for (const name of NAMES) {
      await writeFile(join(folder, writer, name), contentOf(0));
      await chown(join(folder, writer, name), uid, gid);
    }
  }
  // So that a look takes long enough to be written into.
  await mkdir(join(folder, 'many'));
  for (let file = 0; file < 500; file += 1) await writeFile(join(folder, 'many', String(file)), `${file}`);
});
afterAll(() => home.dispose());

async function numberOf(read: Promise<{ readonly bytes: Uint8Array }>): Promise<number> {
  const bytes = Buffer.from((await read).bytes);
  const number = Number(bytes.toString('latin1', 0, LINE));
  expect(bytes.equals(contentOf(number)), `torn: ${bytes.toString('latin1')}`).toBe(true);
  return number;
}

/** `b` is read first: whoever writes in order can only have got further since. */
async function pairOf(where: { session: string } | { snapshot: string }, writer: Writer): Promise<Pair> {
  const { peer } = await home.connect();
  const read = (name: string) =>
    numberOf(peer.callWithBytes('files/read', { ...where, path: `/workspace/${writer}/${name}`, offset: 0 }));
  const b = await read('b');
  return [await read('a'), b];
}

const pairs = (where: { session: string } | { snapshot: string }): Promise<Pair[]> =>
  Promise.all(WRITERS.map((writer) => pairOf(where, writer)));

/** Longer after each snapshot that was refused: on a busy machine a look takes longer. */
const rest = { factor: 1 };

/** Bursts with rests in between, as `seed` has them, until it is told to end. */
async function writing(
  seed: number,
  write: (name: string, bytes: Buffer) => Promise<unknown>,
): Promise<{ end: () => Promise<void> }> {
  const random = new SeededRandom(seed);
  const over = new AbortController();
  let number = 0;
  const work = (async () => {
    while (!over.signal.aborted) {
      for (let burst = 1 + random.below(6); burst > 0; burst -= 1) {
        number += 1;
        for (const name of NAMES) await write(name, contentOf(number));
        await sleep(random.below(4));
      }
      await sleep((20 + random.below(150)) * rest.factor);
    }
  })();
  work.catch(() => undefined);
  await Promise.resolve();
  return {
    end: async () => {
      over.abort();
      await work;
    },
  };
}

test(
  'a snapshot of a workspace that is being written to is consistent, and the agent continues',
  { timeout: soakCount(180_000, 3_600_000) },
  async () => {
    const seed = seedOfRun('moments');
    const { peer } = await home.connect();
    await peer.call('exec/start', { session: id, command: ['python3', '-c', AGENT] });
    const client = await writing(seed, (name, bytes) =>
      peer.callWithBytes(
        'files/write',
        { session: id, path: `/workspace/client/${name}`, create: true, overwrite: true },
        { bytes },
      ),
    );
    const machine = await writing(seed + 1, async (name, bytes) => {
      // As a program of another container would: whole files, one after the other.
      const fresh = join(folder, 'machine', `.${name}`);
      await writeFile(fresh, bytes);
      await rename(fresh, join(folder, 'machine', name));
    });
    let taken = 0;
    let frozen = 0;
    let refused = 0;
    try {
      await waitUntil(
        'the agent writes',
        async () => (await pairOf({ session: id }, 'agent'))[1] > 0,
        60_000,
      );
      for (let round = 0; taken < soakCount(6, 300) && round < soakCount(60, 3000); round += 1) {
        const before = await pairs({ session: id });
        const snapshot = await home.call('snapshot/create', { session: id }).catch((error: unknown) => {
          // Who is not frozen may have written at every one of its looks. Then there is none.
          if (error instanceof HoldfastError && ['conflict', 'file_unavailable'].includes(error.code))
            return null;
          throw error;
        });
        const after = await pairs({ session: id });
        const agent = after[0];
        await waitUntil(
          'the agent goes on',
          async () => (await pairOf({ session: id }, 'agent'))[1] > (agent?.[0] ?? 0),
          60_000,
        );
        if (snapshot === null) {
          refused += 1;
          rest.factor = Math.min(rest.factor * 2, 32);
          continue;
        }
        taken += 1;
        rest.factor = 1;
        frozen += snapshot.frozenMs > 0 ? 1 : 0;
        for (const [index, [a, b]] of (await pairs({ snapshot: snapshot.id })).entries()) {
          const what = `round ${round}, ${WRITERS[index] ?? ''}: ${a} and ${b}`;
          expect([0, 1], what).toContain(a - b);
          expect(b, what).toBeGreaterThanOrEqual(before[index]?.[1] ?? 0);
          expect(a, what).toBeLessThanOrEqual(after[index]?.[0] ?? 0);
        }
      }
      printInSoak(`moments: ${taken} taken, ${frozen} of them with the agent frozen, ${refused} refused`);
      // Or this proves nothing.
      expect(taken).toBeGreaterThan(0);
      expect(frozen).toBeGreaterThan(0);
    } finally {
      await client.end();
      await machine.end();
      await writeFile(join(folder, 'agent/stop'), '');
    }
    await waitUntil('the agent has ended', () => existsSync(join(folder, 'agent/ended')), 60_000);
    // What came after the last look is not missed.
    const last = await home.call('snapshot/create', { session: id });
    expect(await pairs({ snapshot: last.id })).toEqual(await pairs({ session: id }));
    await expectSettled(home);
  },
);
