import { hash } from 'node:crypto';
import {
  appendFileSync,
  existsSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { BINARY, type Content, TEXT } from '../../../protocol/contents.ts';
import { INLINE_OUTPUT_BYTES, OUTPUT_STREAMS } from '../../../protocol/turn-events.ts';
import { Artifacts } from '../../../supervisor/history/artifacts.ts';
import { Contents } from '../../../supervisor/history/contents.ts';
import { EventLog } from '../../../supervisor/history/event-log.ts';
import { TurnOutput } from '../../../supervisor/history/turn-output.ts';
import { Home } from '../../../supervisor/store/home.ts';
import { Sessions } from '../../../supervisor/store/sessions.ts';
import { Turns } from '../../../supervisor/store/turns.ts';
import { seededRandom } from '../../fixtures/protocol/seeded-random.ts';
import {
  thrownError,
  newTurn,
  sessionId,
  sessionRow,
  smallDisk,
  temporaryDatabase,
  temporaryHome,
  turnId,
} from '../../fixtures/store/temporary-home.ts';

const SESSION = sessionId(0);
const TURN = turnId(1);
const FILE = `${TURN}.output`;

function content(bytes: string | Buffer, mediaType: string): Content {
  const all = Buffer.from(bytes);
  return { sha256: hash('sha256', all), bytes: all.length, mediaType };
}

function given(home: Home = temporaryHome()) {
  const database = temporaryDatabase(home);
  const sessions = new Sessions(database);
  const turns = new Turns(database);
  if (sessions.get(SESSION) === null) {
    sessions.insert(sessionRow(0));
    turns.insert(newTurn(1));
  }
  const log = new EventLog(database);
  const artifacts = new Artifacts(home);
  const contents = new Contents(database, artifacts);
  const output = new TurnOutput(database, log, contents, artifacts);
  return { home, database, sessions, turns, log, artifacts, contents, output };
}

describe('artifacts', () => {
  const at = (home: Home): string => home.artifact(SESSION, 'a');

  test('can be appended to, read and removed, and only by their owner', () => {
    const { artifacts, home } = given();
    artifacts.append(SESSION, 'a', 0, Buffer.from('one '));
    artifacts.append(SESSION, 'a', 4, Buffer.from('two'));
    artifacts.sync(SESSION, 'a');
    expect(readFileSync(at(home), 'utf8')).toBe('one two');
    expect(statSync(at(home)).mode & 0o777).toBe(0o600);
    expect(artifacts.read(SESSION, 'a', 2, 3).toString()).toBe('e t');
    expect(artifacts.read(SESSION, 'a', 7, 3).length).toBe(0);
    expect(artifacts.read(SESSION, 'a', 99, 3).length).toBe(0);
    expect([artifacts.size(SESSION, 'a'), artifacts.size(SESSION, 'b')]).toEqual([7, 0]);
    artifacts.remove(SESSION);
    artifacts.remove(SESSION);
    expect(thrownError(() => artifacts.read(SESSION, 'a', 0, 1)).code).toBe('not_found');
  });

  test('lose bytes that a crash left after the durable end, and never have a gap', () => {
    const { artifacts, home } = given();
    artifacts.append(SESSION, 'a', 0, Buffer.from('one'));
    appendFileSync(at(home), 'left over from a crash');
    artifacts.append(SESSION, 'a', 3, Buffer.from('!'));
    expect(readFileSync(at(home), 'utf8')).toBe('one!');
    expect(thrownError(() => artifacts.append(SESSION, 'a', 5, Buffer.from('x'))).code).toBe('internal');
    expect(readFileSync(at(home), 'utf8')).toBe('one!');
  });
});

describe('the output of a turn', () => {
  test('is stored in the database while it is small', () => {
    const { output, log, turns, artifacts, contents } = given();
    expect(output.store(TURN, 'stdout', 0, Buffer.from('hällo '))).toBe(7);
    expect(output.store(TURN, 'stdout', 7, Buffer.from('world'))).toBe(12);
    expect(output.store(TURN, 'stderr', 0, Buffer.from([0xff, 0]))).toBe(2);
    expect(log.read(SESSION).map((event) => event.data)).toEqual([
      { turnId: TURN, stream: 'stdout', offset: 0, bytes: 7, content: content('hällo ', TEXT) },
      { turnId: TURN, stream: 'stdout', offset: 7, bytes: 5, content: content('world', TEXT) },
      {
        turnId: TURN,
        stream: 'stderr',
        offset: 0,
        bytes: 2,
        content: content(Buffer.from([0xff, 0]), BINARY),
      },
    ]);
    const { part, total, mediaType } = contents.read(SESSION, content('world', TEXT).sha256, 1, 3);
    expect([part.toString(), total, mediaType]).toEqual(['orl', 5, TEXT]);
    expect(turns.get(TURN)).toMatchObject({ stdoutBytes: 12, stderrBytes: 2, resultBytes: 0 });
    expect(output.read(TURN, 'stdout', 0, 100).toString()).toBe('hällo world');
    expect(output.read(TURN, 'stdout', 5, 4).toString()).toBe('o wo');
    expect(output.read(TURN, 'stdout', 12, 4).length).toBe(0);
    expect(artifacts.size(SESSION, FILE)).toBe(0);
  });

  test('keeps a character that arrives in two chunks', () => {
    const { output, log } = given();
    const bytes = Buffer.from('ä€🙂');
    for (let n = 0; n < bytes.length; n += 1) output.store(TURN, 'stdout', n, bytes.subarray(n, n + 1));
    expect(output.read(TURN, 'stdout', 0, 100).equals(bytes)).toBe(true);
    expect(log.read(SESSION).map(({ data }) => data['content'])).toEqual(
      [...bytes].map((byte) => content(Buffer.from([byte]), BINARY)),
    );
  });

  test('ignores bytes that are already stored and rejects a gap', () => {
    const { output, turns, log } = given();
    output.store(TURN, 'stdout', 0, Buffer.from('abc'));
    expect(output.store(TURN, 'stdout', 0, Buffer.from('abc'))).toBe(3);
    expect(output.store(TURN, 'stdout', 1, Buffer.from('b'))).toBe(3);
    expect(output.store(TURN, 'stdout', 3, Buffer.alloc(0))).toBe(3);
    expect(log.head(SESSION).seq).toBe(1);
    expect(output.store(TURN, 'stdout', 1, Buffer.from('bcde'))).toBe(5);
    expect(output.read(TURN, 'stdout', 0, 100).toString()).toBe('abcde');
    expect(thrownError(() => output.store(TURN, 'stdout', 6, Buffer.from('x'))).code).toBe('internal');
    expect(turns.get(TURN)?.stdoutBytes).toBe(5);
    expect(thrownError(() => output.store(turnId(9), 'stdout', 0, Buffer.from('x'))).code).toBe('not_found');
    expect(thrownError(() => output.read(turnId(9), 'stdout', 0, 1)).code).toBe('not_found');
  });

  test('above 32 KB in all goes to a file of the turn', () => {
    const { output, log, home } = given();
    output.store(TURN, 'stderr', 0, Buffer.from('e'.repeat(100)));
    output.store(TURN, 'stdout', 0, Buffer.from('a'.repeat(INLINE_OUTPUT_BYTES - 100)));
    expect(existsSync(home.artifact(SESSION, FILE))).toBe(false);
    output.store(TURN, 'stdout', INLINE_OUTPUT_BYTES - 100, Buffer.from('b'));
    const file = home.artifact(SESSION, FILE);
    expect(readFileSync(file, 'utf8')).toBe('b');
    expect(log.read(SESSION).at(-1)?.data).toEqual({
      turnId: TURN,
      stream: 'stdout',
      offset: INLINE_OUTPUT_BYTES - 100,
      bytes: 1,
      content: content('b', TEXT),
    });
    output.store(TURN, 'stdout', INLINE_OUTPUT_BYTES - 99, Buffer.from('cd'));
    expect(output.read(TURN, 'stdout', INLINE_OUTPUT_BYTES - 102, 10).toString()).toBe('aabcd');
    expect(output.read(TURN, 'stderr', 0, 1000).length).toBe(100);
    // Only what the row acknowledges is output.
    appendFileSync(file, 'never acknowledged');
    expect(output.read(TURN, 'stdout', 0, 2 ** 20).length).toBe(INLINE_OUTPUT_BYTES - 97);
  });

  test.each([3, INLINE_OUTPUT_BYTES + 1])('of %i bytes is stored whole or not at all', (size) => {
    const { output, log, turns, database } = given();
    // The last write of a store is the row's; here it fails.
    database.run("CREATE TRIGGER refuse BEFORE UPDATE ON turns BEGIN SELECT RAISE(ABORT, 'refused'); END");
    expect(thrownError(() => output.store(TURN, 'stdout', 0, Buffer.alloc(size, 'a'))).why).toBe('refused');
    expect(log.head(SESSION).seq).toBe(0);
    expect(output.read(TURN, 'stdout', 0, 100).length).toBe(0);
    database.run('DROP TRIGGER refuse');
    expect(output.store(TURN, 'stdout', 0, Buffer.alloc(size, 'b'))).toBe(size);
    expect(turns.get(TURN)?.stdoutBytes).toBe(size);
    expect(log.head(SESSION).seq).toBe(1);
    expect(output.read(TURN, 'stdout', 0, size).equals(Buffer.alloc(size, 'b'))).toBe(true);
  });

  test('on a full disk keeps the durable bytes, and continues when there is space', (context) => {
    const disk = smallDisk();
    if (disk === null) {
      context.skip('a small disk needs the right to mount one');
      return;
    }
    const { output, turns, log, home } = given(Home.open(join(disk, 'home')));
    const byteAt = (offset: number): number => (offset * 31) % 251;
    const piece = (from: number): Buffer =>
      Buffer.from(Array.from({ length: 300_000 }, (_, n) => byteAt(from + n)));
    const filler = join(disk, 'filler');
    writeFileSync(filler, Buffer.alloc(16 * 2 ** 20));
    let durable = 0;
    const failure = thrownError(() => {
      for (;;) durable = output.store(TURN, 'stdout', durable, piece(durable));
    });
    expect(failure.code).toBe('no_space');
    expect(durable).toBeGreaterThan(0);
    expect(turns.get(TURN)?.stdoutBytes).toBe(durable);
    const seq = log.head(SESSION).seq;
    rmSync(filler);
    durable = output.store(TURN, 'stdout', durable, piece(durable));
    expect(log.head(SESSION).seq).toBe(seq + 1);
    const all = readFileSync(home.artifact(SESSION, FILE));
    expect(all.length).toBe(durable);
    expect(all.findIndex((byte, offset) => byte !== byteAt(offset))).toBe(-1);
  });

  test('that is missing in the file is an error, not a shorter output', () => {
    const { output, home } = given();
    output.store(TURN, 'stdout', 0, Buffer.alloc(INLINE_OUTPUT_BYTES + 1));
    truncateSync(home.artifact(SESSION, FILE), 10);
    expect(thrownError(() => output.read(TURN, 'stdout', 0, 100)).code).toBe('home_damaged');
  });

  test('of a program that prints a few bytes at a time is read in bounded steps', () => {
    const { output } = given();
    const pieces = Array.from({ length: 2_500 }, (_, at) => `${at};`);
    let offset = 0;
    for (const piece of pieces) offset = output.store(TURN, 'stdout', offset, Buffer.from(piece));
    const parts: Buffer[] = [];
    for (let at = 0; at < offset;) {
      const part = output.read(TURN, 'stdout', at, offset);
      expect(part.length).toBeGreaterThan(0);
      expect(part.toString().split(';').length).toBeLessThanOrEqual(1_001);
      parts.push(part);
      at += part.length;
    }
    expect(Buffer.concat(parts).toString()).toBe(pieces.join(''));
  });

  test('is stored again where the file of equal bytes was lost', () => {
    const { home, output, turns } = given();
    turns.insert(newTurn(2));
    const large = Buffer.alloc(INLINE_OUTPUT_BYTES + 1, 'x');
    output.store(TURN, 'stdout', 0, large);
    rmSync(home.artifact(SESSION, FILE));
    output.store(turnId(2), 'stdout', 0, large);
    expect(output.read(turnId(2), 'stdout', 0, large.length)).toEqual(large);
  });

  test('continues after a crash between the file and the row', () => {
    const home = temporaryHome();
    const first = given(home);
    first.output.store(TURN, 'stdout', 0, Buffer.from('small'));
    first.database.close();
    const crashed = home.artifact(SESSION, FILE);
    new Artifacts(home).append(SESSION, FILE, 0, Buffer.from('never acknowledged'));
    const { output } = given(home);
    expect(output.read(TURN, 'stdout', 0, 100).toString()).toBe('small');
    output.store(TURN, 'stdout', 5, Buffer.alloc(INLINE_OUTPUT_BYTES, 'y'));
    expect(readFileSync(crashed, 'utf8')).toBe('y'.repeat(INLINE_OUTPUT_BYTES));
  });

  test('in any chunks is read back byte for byte, also after a restart', async () => {
    for (let seed = 1; seed <= 8; seed += 1) {
      const random = seededRandom(seed);
      const home = temporaryHome();
      const { output, database, log, turns } = given(home);
      const truth = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0), result: Buffer.alloc(0) };
      const scale = seed % 2 === 0 ? 300 : 6000;
      for (let n = 0; n < 60; n += 1) {
        const stream = OUTPUT_STREAMS[Math.floor(random() * 3)] ?? 'stdout';
        const size = Math.floor(random() * scale);
        const piece = Buffer.from(
          Array.from({ length: size }, () => Math.floor(random() * (seed % 3 === 0 ? 256 : 128))),
        );
        const again = Math.floor(random() * Math.min(50, truth[stream].length));
        const offset = truth[stream].length - again;
        output.store(TURN, stream, offset, Buffer.concat([truth[stream].subarray(offset), piece]));
        truth[stream] = Buffer.concat([truth[stream], piece]);
      }
      expect(turns.get(TURN)).toMatchObject({
        stdoutBytes: truth.stdout.length,
        stderrBytes: truth.stderr.length,
      });
      expect(await log.verify(SESSION)).toMatchObject({ ok: true });
      database.close();
      const reopened = given(home);
      for (const stream of OUTPUT_STREAMS) {
        expect(reopened.output.read(TURN, stream, 0, 2 ** 22).equals(truth[stream])).toBe(true);
        const [from, to] = [Math.floor(truth[stream].length / 3), Math.floor(truth[stream].length / 2)];
        const part = reopened.output.read(TURN, stream, from, to - from);
        expect(part.equals(truth[stream].subarray(from, to))).toBe(true);
      }
    }
  });
});
