import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { Journals } from '../../../handoff/journal.ts';
import { recoverHandoffs, undoHandoff } from '../../../handoff/undo.ts';
import {
  filesIn,
  handedOverSession,
  handOff,
  open,
  PersonsRepository,
} from '../../fixtures/handoff/handoff-fixture.ts';
import { temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

const isRoot = process.getuid?.() === 0;
const KIB = 1024;
const DISK_KIB = 12 * 1024;
/** Text that git cannot pack tightly. */
function noise(seed: number, kib: number): Buffer {
  const bytes = Buffer.alloc(kib * KIB);
  for (let at = 0, state = seed; at < bytes.length; at += 1) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    bytes[at] = 33 + ((state >>> 16) % 90);
  }
  return bytes;
}

const BEFORE = { 'a.bin': noise(1, 256), 'sub/b.bin': noise(2, 256), gone: 'gone\n' };
const AFTER = { 'a.bin': noise(3, 512), 'sub/b.bin': noise(4, 512), 'new/c.bin': noise(5, 256) };

/** A disk of its own with a repository in it. */
async function onSmallDisk() {
  const disk = temporaryDirectory();
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_KIB}k,mode=0755`, 'holdfast-test', disk]);
  onTestFinished(() => void execFileSync('umount', ['-l', disk]));
  const repository = new PersonsRepository(disk);
  const head = repository.commit(BEFORE);
  repository.write({ mine: 'not committed\n' });
  const session = await handedOverSession(BEFORE, AFTER, { head });
  const fill = join(disk, 'fill');
  return {
    ...session,
    ...{ disk, repository },
    /** Leaves so much free. */
    fillBut(kib: number) {
      const { bavail, bsize } = statfsSync(disk);
      writeFileSync(fill, Buffer.alloc(Math.max(0, bavail * bsize - kib * KIB)));
    },
    makeRoom: () => rmSync(fill, { force: true }),
    seen: () => ({
      files: filesIn(repository.folder),
      references: repository.git('for-each-ref'),
      status: repository.git('status', '--porcelain'),
      worktrees: repository.git('worktree', 'list', '--porcelain'),
      beside: readdirSync(disk).filter((name) => name !== 'fill'),
      lock: existsSync(join(repository.folder, '.git/index.lock')),
    }),
  };
}

describe.skipIf(!isRoot)('a full disk (needs root)', () => {
  test.for(['tree', 'worktree', 'branch', 'dir'] as const)(
    'a handoff is made wholly or not at all, says why, and can be undone: %s',
    { timeout: 240_000 },
    async (to) => {
      const at = await onSmallDisk();
      const ends: string[] = [];
      // More and more room, until it is enough.
      for (let free = 0; free < DISK_KIB && ends.at(-1) !== 'made'; free += free < 64 ? 8 : 192) {
        const was = at.seen();
        at.fillBut(free);
        const folder = to === 'dir' ? join(at.disk, 'results') : undefined;
        const made = await handOff(at.connection, at.repository.folder, { to, folder }).catch(
          (error: unknown) => HoldfastError.from(error),
        );
        at.makeRoom();
        if (made instanceof HoldfastError) {
          ends.push(made.code);
          expect([made.code, made.sentence], `${free} KiB free`).toEqual([
            'no_space',
            expect.stringMatching(/the disk is full.*free some space/s),
          ]);
          const { failed } = await recoverHandoffs(await open(at.repository.folder));
          expect(failed).toEqual([]);
        } else {
          ends.push('made');
          if (to === 'dir') rmSync(join(at.disk, 'results'), { recursive: true });
          else await undoHandoff(await open(at.repository.folder), { force: false });
        }
        expect(at.seen(), `${free} KiB free`).toEqual(was);
      }
      expect(ends.at(-1)).toBe('made');
      expect(ends.length).toBeGreaterThan(3);
      expect(at.repository.git('fsck', '--strict', '--no-dangling')).toBe('');
    },
  );

  test.for(['tree', 'worktree'] as const)(
    'an undo without room says so, and is done when there is some: %s',
    { timeout: 120_000 },
    async (to) => {
      const at = await onSmallDisk();
      const was = at.seen();
      await handOff(at.connection, at.repository.folder, { to });
      for (const free of [0, 64, 300]) {
        at.fillBut(free);
        const undone = await undoHandoff(await open(at.repository.folder), { force: false }).then(
          () => null,
          (error: unknown) => HoldfastError.from(error),
        );
        at.makeRoom();
        if (undone === null) break;
        expect([undone.code, undone.sentence], `${free} KiB free`).toEqual([
          'no_space',
          expect.stringContaining('the disk is full'),
        ]);
      }
      const { journals } = await new Journals(join(at.repository.folder, '.git')).list();
      if (journals.length > 0) await undoHandoff(await open(at.repository.folder), { force: false });
      expect(at.seen()).toEqual(was);
    },
  );
});
