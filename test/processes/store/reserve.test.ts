import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { openDatabase } from '../../../supervisor/store/database.ts';
import { Home } from '../../../supervisor/store/home.ts';
import { DiskReserve } from '../../../supervisor/store/reserve.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import {
  thrownError,
  sessionId,
  sessionRow,
  smallDisk,
  temporaryHome,
} from '../../fixtures/store/temporary-home.ts';

describe('the reserve', () => {
  test('is created once and used once, only on a full disk', () => {
    const home = temporaryHome();
    const reserve = new DiskReserve(home);
    expect([reserve.ensure(), reserve.ensure()]).toEqual([true, true]);
    expect(statSync(home.reserve).blocks * 512).toBeGreaterThanOrEqual(8 * 2 ** 20);
    expect(() =>
      reserve.retryOnFullDisk(() => {
        throw new Error('something else');
      }),
    ).toThrow('something else');
    expect(existsSync(home.reserve)).toBe(true);
    let tries = 0;
    const full = (): string => {
      tries += 1;
      if (existsSync(home.reserve)) throw new HoldfastError('no_space', 'full');
      return 'done';
    };
    expect([reserve.retryOnFullDisk(full), tries]).toEqual(['done', 2]);
    expect(
      thrownError(() =>
        reserve.retryOnFullDisk(() => {
          throw new HoldfastError('no_space', 'still full');
        }),
      ).message,
    ).toBe('still full');
  });

  test('lets a session be deleted on a full disk, where nothing else can be written', async (context) => {
    const disk = smallDisk();
    if (disk === null) {
      context.skip('a small disk needs the right to mount one');
      return;
    }
    const home = Home.open(join(disk, 'home'));
    const database = openDatabase(home);
    onTestFinished(() => database.close());
    const sessions = new Sessions(database);
    const log = new EventLog(database);
    const reserve = new DiskReserve(home);
    expect(reserve.ensure()).toBe(true);
    sessions.insert(sessionRow(0));
    const fill = (): void => writeFileSync(join(disk, 'filler'), Buffer.alloc(65_536), { flag: 'a' });
    const failure = thrownError(() => {
      // Other processes fill the disk too; otherwise the database would reuse the space of its log.
      for (;;) {
        try {
          fill();
        } catch {
          // The database may still find space.
        }
        log.append(sessionId(0), [{ type: 'session.updated', data: { about: 'x'.repeat(4000) } }]);
      }
    });
    expect(failure.code).toBe('no_space');
    expect(fill).toThrow('ENOSPC');
    expect(readFileSync(home.idFile, 'utf8').trim()).toBe(home.id);
    const acknowledged = log.head(sessionId(0)).seq;
    const large = (): unknown =>
      log.append(sessionId(0), [{ type: 'session.updated', data: { about: 'y'.repeat(200_000) } }]);
    expect(thrownError(large).code).toBe('no_space');
    reserve.retryOnFullDisk(() =>
      database.transaction(() => {
        large();
        sessions.update(sessionId(0), { status: 'deleted', deletedAt: 1 });
      }),
    );
    expect(sessions.get(sessionId(0))?.status).toBe('deleted');
    expect(await log.verify(sessionId(0))).toMatchObject({ ok: true, events: acknowledged + 1 });
    expect(reserve.ensure()).toBe(false);
  });
});
