import { execFileSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, test } from 'vitest';
import { FILE_CHUNK_BYTES } from '../../protocol/files.ts';
import { shellProject } from '../setup/profiles.ts';
import { SeededRandom } from '../fixtures/protocol/seeded-random.ts';
import { expectSettled } from './harness/expectations.ts';
import type { FaultHome } from './harness/fault-home.ts';
import type { SupervisorProcess } from './harness/supervisor-process.ts';
import { waitUntil, useFaultFixture } from './harness/fault-fixture.ts';
import { soakCount } from '../setup/run-length.ts';

const KILLS = soakCount(4, 100);
/** Written in one message, and in several. */
const SIZES = [200, 300_000, FILE_CHUNK_BYTES + 1_000_000];

const bench = useFaultFixture(afterAll);

/** Content that shows where it was cut or mixed: one letter all the way, its round at both ends. */
function content(round: number, size: number): Buffer {
  const mark = `<${String(round).padStart(6, '0')}>`;
  return Buffer.from(mark + String.fromCharCode(97 + (round % 26)).repeat(size - 2 * mark.length) + mark);
}

async function write(home: FaultHome, session: string, path: string, bytes: Buffer): Promise<void> {
  const expectation = { session, path, create: true, overwrite: true };
  if (bytes.length <= FILE_CHUNK_BYTES) {
    await home.call('files/write', expectation, bytes);
    return;
  }
  const { upload } = await home.call('files/begin', expectation);
  for (let offset = 0; offset < bytes.length; offset += FILE_CHUNK_BYTES) {
    const piece = bytes.subarray(offset, offset + FILE_CHUNK_BYTES);
    await home.call('files/append', { session, upload, offset }, piece);
  }
  await home.call('files/commit', { session, upload, size: bytes.length });
}

interface Found {
  readonly names: readonly string[];
  readonly contents: readonly Buffer[];
}

/** What is there once nothing moves any more: a sidecar that lives finishes what it has begun, whoever asked for it. */
async function settled(folder: string): Promise<Found> {
  let before: Found | null = null;
  for (;;) {
    // It follows no links, and goes past us.
    const listed = execFileSync('find', [folder, '-mindepth', '1', '-printf', '%P\\n'], { encoding: 'utf8' });
    const names = listed.trim().split('\n').sort();
    const contents = await Promise.all(SIZES.map((size) => readFile(join(folder, `f${size}`))));
    const isStill =
      before?.names.join() === names.join() &&
      before.contents.every((bytes, at) => bytes.equals(contents[at] ?? EMPTY));
    if (isStill) return { names, contents };
    before = { names, contents };
    await sleep(300);
  }
}
const EMPTY = Buffer.alloc(0);

type Victim = 'the supervisor' | 'the agent container' | 'the sidecar';

describe.each<Victim>(['the supervisor', 'the agent container', 'the sidecar'])('kill -9 of %s', (victim) => {
  test(
    'while files are written: each has its old or its new content, and there is nothing else',
    async () => {
      const home = await bench.createHome();
      let supervisor: SupervisorProcess = await home.start();
      await bench.deploy(home, shellProject('shell'));
      const { session } = await home.call('session/create', { profile: 'shell' });
      const folder = join(home.path, 'workspaces', session.id);
      const random = new SeededRandom(victim.length);
      const running = async (role: 'agent' | 'sidecar'): Promise<string | undefined> =>
        (await home.listObjects()).find(
          ({ labels, state }) => labels['dev.holdfast.role'] === role && state === 'running',
        )?.id;
      /** The engine tells of a death a moment late: until then a session counts as running. */
      const resumed = async (): Promise<boolean> => {
        await home.call('session/resume', { session: session.id });
        return (await running('agent')) !== undefined && (await running('sidecar')) !== undefined;
      };
      const kill = async (): Promise<void> => {
        if (victim === 'the supervisor') {
          await supervisor.kill();
          supervisor = await home.start();
          return;
        }
        const id = await running(victim === 'the sidecar' ? 'sidecar' : 'agent');
        if (id === undefined) throw new Error(`${victim} does not run`);
        await home.docker.getContainer(id).kill();
      };

      const there = new Map(SIZES.map((size) => [size, 0]));
      for (const size of SIZES) await write(home, session.id, `/workspace/f${size}`, content(0, size));
      for (let n = 1; n <= KILLS; n += 1) {
        await waitUntil('the sandbox runs', resumed, 20_000);
        const tried = new Map<number, number>();
        const over = new AbortController();
        const writers = SIZES.map(async (size) => {
          for (let round = n * 1000; !over.signal.aborted; round += 1) {
            tried.set(size, round);
            try {
              await write(home, session.id, `/workspace/f${size}`, content(round, size));
            } catch {
              return; // it was cut off
            }
            there.set(size, round);
          }
        });
        await sleep(random.below(200));
        await kill();
        over.abort();
        await Promise.all(writers);
        // The next call about files settles what was cut off.
        await home.call('files/stat', { session: session.id, path: '/workspace' });
        const found = await settled(folder);
        expect(found.names).toEqual(SIZES.map((size) => `f${size}`).sort());
        for (const [at, size] of SIZES.entries()) {
          const bytes = found.contents[at] ?? Buffer.alloc(0);
          const round = Number(bytes.toString('latin1', 1, 7));
          expect([size, bytes.equals(content(round, size))]).toEqual([size, true]);
          expect([there.get(size), tried.get(size)]).toContain(round);
          there.set(size, round);
        }
      }
      await expectSettled(home);
      await home.call('session/stop', { session: session.id });
    },
    soakCount(120_000, 3_600_000),
  );
});
