import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { Artifacts } from '../../../supervisor/history/artifacts.ts';
import { Contents } from '../../../supervisor/history/contents.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { TurnOutput } from '../../../supervisor/history/turn-output.ts';
import { openDatabase } from '../../../supervisor/store/database.ts';
import type { Home } from '../../../supervisor/store/home.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { Turns } from '../../../supervisor/store/turns.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';
import {
  newTurn,
  sessionId,
  sessionRow,
  temporaryHome,
  turnId,
} from '../../fixtures/store/temporary-home.ts';
import { outputByte } from './crash-pattern.ts';
import { soakCount } from '../../setup/run-length.ts';

const KILLS = soakCount(4, 150);
const SESSION = sessionId(0);
const TURN = turnId(1);
const AcknowledgedSchema = z.tuple([z.int(), z.int(), z.int()]);
type Acknowledged = z.output<typeof AcknowledgedSchema>;

/** Lets a writer work for `ms` after its first answer, kills it, and returns the last thing it acknowledged. */
async function writeAndKill(home: Home, seed: number, ms: number): Promise<Acknowledged> {
  const script = join(import.meta.dirname, 'crash-writer.ts');
  const child = spawn(process.execPath, [script, home.root, String(seed), SESSION, TURN], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const acknowledged: Acknowledged[] = [];
  const lines = createInterface({ input: child.stdout });
  const closed = once(lines, 'close');
  lines.on('line', (line) => {
    // The last line may be half a line: then it was never said.
    if (line.endsWith(']')) acknowledged.push(AcknowledgedSchema.parse(JSON.parse(line)));
  });
  try {
    await Promise.race([once(lines, 'line'), exited]);
    await delay(ms);
  } finally {
    child.kill('SIGKILL');
  }
  const [, signal] = (await exited) as [number | null, string | null];
  await closed;
  expect(signal).toBe('SIGKILL');
  const last = acknowledged.at(-1);
  if (last === undefined) throw new Error('the writer said nothing');
  return last;
}

test(
  `kill -9 in the middle of writing, ${KILLS} times: nothing acknowledged is lost, and nothing is half there`,
  { timeout: KILLS * 15_000 },
  async () => {
    const home = temporaryHome();
    const first = openDatabase(home);
    new Sessions(first).insert(sessionRow(0));
    new Turns(first).insert(newTurn(1, { timeoutMs: 0 }));
    first.close();
    const random = seededRandom(42);
    let before = 0;
    for (let kill = 1; kill <= KILLS; kill += 1) {
      const [seq, stdout, stderr] = await writeAndKill(home, kill, random() * 80);
      const database = openDatabase(home);
      try {
        const log = new EventLog(database);
        const artifacts = new Artifacts(home);
        const output = new TurnOutput(database, log, new Contents(database, artifacts), artifacts);
        const turn = new Turns(database).getOrThrow(TURN);
        const verification = await log.verify(SESSION);
        expect(verification).toMatchObject({ ok: true, events: log.head(SESSION).seq, firstInvalid: null });
        expect(verification.events).toBeGreaterThanOrEqual(seq);
        expect(turn.stdoutBytes).toBeGreaterThanOrEqual(stdout);
        expect(turn.stderrBytes).toBeGreaterThanOrEqual(stderr);
        for (const stream of ['stdout', 'stderr'] as const) {
          const total = turn[`${stream}Bytes`];
          const bytes = Buffer.concat(
            Array.from({ length: Math.ceil(total / 2 ** 20) }, (_, n) =>
              output.read(TURN, stream, n * 2 ** 20, 2 ** 20),
            ),
          );
          expect(bytes.length).toBe(total);
          expect(bytes.findIndex((byte, offset) => byte !== outputByte(offset))).toBe(-1);
        }
        // The row of the last pair and the pair itself came together or not at all.
        const pair = log.get(SESSION, turn.timeoutMs);
        if (turn.timeoutMs > 0) expect(pair?.data).toEqual({ bytes: turn.timeoutMs - 1 });
        expect(verification.events).toBeGreaterThan(before);
        before = verification.events;
      } finally {
        database.close();
      }
    }
  },
);
