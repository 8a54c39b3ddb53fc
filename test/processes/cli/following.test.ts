import { appendFileSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import type { SessionEvent } from '../../../protocol/entities.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { runToEnd, CliRun } from '../../fixtures/cli/cli-run.ts';
import { FakeSupervisor, profile, session, SESSION_ID } from '../../fixtures/cli/fake-supervisor.ts';
import type { ClientPeer, FakeHandlers } from '../../fixtures/cli/fake-supervisor.ts';

const EXTENT = { warnings: [], ignored: { files: 0, bytes: 0, complete: true, largest: [] }, seed: null };

const ends: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});
async function serve(handlers: FakeHandlers): Promise<FakeSupervisor> {
  const fake = await FakeSupervisor.start(handlers);
  ends.push(() => fake.dispose());
  return fake;
}
function directory(): string {
  const path = mkdtempSync(join(tmpdir(), 'holdfast-cli-'));
  ends.push(() => rmSync(path, { recursive: true, force: true }));
  return path;
}
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 10));
}

function event(seq: number, changes: Partial<SessionEvent> = {}): SessionEvent {
  return {
    sessionId: SESSION_ID,
    seq,
    at: '2026-03-01T11:58:00.000Z',
    type: 'session.status',
    data: { from: 'idle', to: 'active', why: 'a turn' },
    prevHash: '0',
    hash: '1',
    ...changes,
  };
}

describe('session events', () => {
  test('prints all pages, one event per line; with --json one document per line', async () => {
    const all = Array.from({ length: 2500 }, (_, at) => event(at + 1));
    const { home, requests } = await serve({
      'session/events': ({ after = 0, limit = 100 }) => ({
        events: all.slice(after, after + limit),
        lastSeq: all.length,
      }),
    });
    const json = await runToEnd(['session', 'events', 'default', '--json', '--after', '10'], { home });
    const seqs = json.stdout
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as SessionEvent).seq);
    expect(seqs).toEqual(all.slice(10).map(({ seq }) => seq));
    const { stdout } = await runToEnd(['session', 'events', 'default', '--type', 'session.status'], { home });
    expect(stdout.split('\n')[0]).toBe(
      '     1  2026-03-01 11:58:00  session.status  from=idle to=active why=a turn',
    );
    expect(requests.at(-1)?.params).toMatchObject({ type: 'session.status' });
  });

  test('--follow continues without a gap after a resync and after a lost connection, and starts no supervisor', async () => {
    const wanted: number[] = [];
    let current: ClientPeer | undefined;
    let count = 0;
    const supervisor = await serve({
      'session/show': () => ({ session: session() }),
      'session/subscribe': ({ after = 0 }, { peer }) => {
        wanted.push(after);
        current = peer;
        count += 1;
        return { subscription: `s${count}`, lastSeq: 9 };
      },
    });
    const send = async (...seqs: number[]) => {
      for (const seq of seqs) {
        await current?.notify('session/event', { subscription: `s${count}`, event: event(seq) });
      }
    };
    const driven = new CliRun(['session', 'events', 'default', '--follow', '--json', '--after', '3'], {
      home: supervisor.home,
    });
    await until(() => count === 1);
    await send(4, 5, 5);
    await driven.waitForText('"seq":5');
    await current?.notify('session/resync', { subscription: 's1', lastSeq: 9 });
    await until(() => count === 2);
    await send(6);
    await driven.waitForText('"seq":6');
    await supervisor.stop();
    await supervisor.listen();
    await until(() => count === 3);
    await send(7);
    await driven.waitForText('"seq":7');
    driven.signal('SIGINT');
    const { code, stdout } = await driven.result;
    expect(code).toBe(130);
    expect(wanted).toEqual([3, 5, 6]);
    const seqs = stdout
      .trimEnd()
      .split('\n')
      .map((line) => (JSON.parse(line) as SessionEvent).seq);
    expect(seqs).toEqual([4, 5, 6, 7]);
  });

  test('verify exits with 1 if the hash chain is broken', async () => {
    const { home } = await serve({
      'session/verify': () => ({
        ok: false,
        events: 9,
        head: 'x',
        firstInvalid: 4,
        contents: { intact: 3, removed: 0, damaged: [] },
      }),
    });
    expect(await runToEnd(['session', 'verify', 'default'], { home })).toMatchObject({
      code: 1,
      stdout: 'broken at event 4 of 9\n',
    });
  });
});

describe('deploy --watch', () => {
  test('deploys at once and after changes, many of them together, and continues after a failed deploy', async () => {
    const path = directory();
    writeFileSync(join(path, 'holdfast.yaml'), 'name: counter\n');
    let broken = false;
    const supervisor = await serve({
      'profile/deploy/begin': () => {
        if (broken) throw new HoldfastError('profile_invalid', 'holdfast.yaml is wrong', { why: 'line 3' });
        const result = { profile: profile(), replaced: true, unchanged: false, ...EXTENT };
        return { upload: null, history: false, result };
      },
    });
    const deploys = () => supervisor.requests.filter(({ method }) => method === 'profile/deploy/begin');
    const driven = new CliRun(['deploy', '.', '--watch'], { home: supervisor.home, cwd: path });
    await driven.waitForText('Watching');
    expect(deploys()).toHaveLength(1);
    expect(deploys()[0]?.params).toMatchObject({ source: path });

    for (let at = 0; at < 20; at += 1) writeFileSync(join(path, `file${String(at)}.py`), 'x');
    await until(() => deploys().length === 2);

    broken = true;
    appendFileSync(join(path, 'holdfast.yaml'), 'oops');
    await driven.waitForText('error profile_invalid: holdfast.yaml is wrong; line 3');
    broken = false;
    appendFileSync(join(path, 'holdfast.yaml'), '\n');
    await until(() => deploys().length === 4);

    mkdirSync(join(path, 'node_modules'));
    writeFileSync(join(path, 'node_modules', 'x.js'), '');
    await new Promise((resolve) => setTimeout(resolve, 600));
    expect(deploys()).toHaveLength(4);

    driven.signal('SIGINT');
    expect((await driven.result).code).toBe(130);
  });

  test('a missing directory is an error at once', async () => {
    const { home } = await serve({});
    const { code, stderr } = await runToEnd(['deploy', '/nonexistent/x', '--watch'], { home });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^error file_not_found: /);
  });
});

describe('supervisor logs', () => {
  const line = (message: string, level = 'info') =>
    `${JSON.stringify({ time: '2026-03-01T11:58:00.123Z', level, module: 'engine', message, pid: 7 })}\n`;
  function homeWithLog(...messages: string[]): { home: string; log: string } {
    const home = directory();
    mkdirSync(join(home, 'logs'));
    const log = join(home, 'logs', 'supervisor.log');
    writeFileSync(log, messages.map((message) => line(message)).join(''));
    return { home, log };
  }

  test('prints the last lines without a supervisor; with --json unchanged', async () => {
    const { home } = homeWithLog(...Array.from({ length: 20_000 }, (_, at) => `message ${String(at)}`));
    const { code, stdout } = await runToEnd(['supervisor', 'logs', '-n', '2'], { home });
    expect(code).toBe(0);
    expect(stdout).toBe(
      '2026-03-01 11:58:00.123 info  engine message 19998 pid=7\n2026-03-01 11:58:00.123 info  engine message 19999 pid=7\n',
    );
    const json = await runToEnd(['supervisor', 'logs', '-n', '1', '--json'], { home });
    expect(json.stdout).toBe(line('message 19999'));
  });

  test('reports that there is no log', async () => {
    const { code, stderr } = await runToEnd(['supervisor', 'logs'], { home: directory() });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^error not_found: There is no supervisor log yet/);
  });

  test('--follow continues after a rotation and loses no line written just before', async () => {
    const { home, log } = homeWithLog('one');
    const driven = new CliRun(['supervisor', 'logs', '--follow'], { home });
    await driven.waitForText('one');
    appendFileSync(log, line('two\u001b[2J'));
    await driven.waitForText('two\\e[2J');
    appendFileSync(log, line('three'));
    renameSync(log, `${log}.1`);
    writeFileSync(log, line('four'));
    await driven.waitForText('four');
    driven.signal('SIGINT');
    const { code, stdout } = await driven.result;
    expect(code).toBe(130);
    expect(stdout.match(/one|two|three|four/g)).toEqual(['one', 'two', 'three', 'four']);
  });
});
