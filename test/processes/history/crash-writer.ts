// Writes to a home until it is killed, saying after each step what is acknowledged: node crash-writer.ts HOME SEED
import { writeSync } from 'node:fs';
import { Artifacts } from '../../../supervisor/history/artifacts.ts';
import { Contents } from '../../../supervisor/history/contents.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { TurnOutput } from '../../../supervisor/history/turn-output.ts';
import { openDatabase } from '../../../supervisor/store/database.ts';
import { Home } from '../../../supervisor/store/home.ts';
import { HomeLock } from '../../../supervisor/store/lock.ts';
import { Turns } from '../../../supervisor/store/turns.ts';
import { outputByte } from './crash-pattern.ts';

const [, , root = '', seed = '0', session = '', turn = ''] = process.argv;
const home = Home.open(root);
HomeLock.acquire(home, { waitMs: 5000 });
const database = openDatabase(home);
database.epoch();
const log = new EventLog(database);
const turns = new Turns(database);
const artifacts = new Artifacts(home);
const output = new TurnOutput(database, log, new Contents(database, artifacts), artifacts);

const acknowledge = (): void => {
  const row = turns.getOrThrow(turn);
  writeSync(1, `${JSON.stringify([log.head(session).seq, row.stdoutBytes, row.stderrBytes])}\n`);
};

const piece = (from: number, length: number): Buffer =>
  Buffer.from(Array.from({ length }, (_, index) => outputByte(from + index)));

let state = Number(seed);
const random = (below: number): number => {
  state = (Math.imul(state, 1103515245) + 12345) >>> 0;
  return (state >>> 8) % below;
};

for (;;) {
  const row = turns.getOrThrow(turn);
  switch (random(4)) {
    case 0:
      log.append(session, [{ type: 'workspace.measured', data: { bytes: random(1000) } }]);
      break;
    case 1:
      output.store(turn, 'stdout', row.stdoutBytes, piece(row.stdoutBytes, 1 + random(3000)));
      break;
    case 2:
      output.store(turn, 'stderr', row.stderrBytes, piece(row.stderrBytes, 1 + random(90)));
      break;
    default:
      // A row and its events belong together: the row counts how many there are.
      database.transaction(() => {
        const { seq } = log.head(session);
        log.append(session, [
          { type: 'workspace.measured', data: { bytes: seq } },
          { type: 'workspace.measured', data: { bytes: seq + 1 } },
        ]);
        turns.update(turn, { timeoutMs: seq + 2 });
      });
  }
  acknowledge();
}
