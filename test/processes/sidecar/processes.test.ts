import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { PROCESS_LIMITS } from '../../../sidecar/wire.ts';
import type {
  ProcessChannel,
  ProcessStatus,
  ProcessStream,
} from '../../../supervisor/workspace/process-channel.ts';
import { SidecarProcessChannel } from '../../../supervisor/workspace/sidecar-process-channel.ts';
import { randomId, waitUntil } from '../../fixtures/sidecar/turns.ts';
import { BUSYBOX, HostSandbox } from './host-sandbox.ts';

let host: HostSandbox;
let channel: ProcessChannel;
beforeEach(async () => {
  if (BUSYBOX === null) return;
  host = await HostSandbox.start();
  channel = new SidecarProcessChannel((use) => use(host.client));
});
afterEach(async () => {
  if (BUSYBOX !== null) await host.dispose();
});

function start(script: string, id = randomId('proc')): Promise<string> {
  const spec = { id, argv: ['sh', '-c', script], env: {}, cwd: host.path('workspace') };
  return channel.start(spec).then(() => id);
}

/** Reads a stream to the end of the process, by offset, and acknowledges it. */
async function readAll(
  id: string,
  stream: ProcessStream = 'stdout',
): Promise<{ text: string; status: ProcessStatus }> {
  let text = '';
  for (let offset = 0; ;) {
    const output = await channel.read({ id, stream, offset, limit: 2 ** 20, waitMs: 5000 });
    expect(output.offset).toBe(offset);
    text += output.bytes.toString();
    offset += output.bytes.length;
    await channel.acknowledge(id, stream, offset);
    if (output.status.state === 'ended' && offset === output.status[stream].end)
      return { text, status: output.status };
  }
}

async function readUntil(id: string, wanted: string): Promise<string> {
  let text = '';
  while (!text.includes(wanted)) {
    const { bytes, status } = await channel.read({
      id,
      stream: 'stdout',
      offset: text.length,
      limit: 1000,
      waitMs: 5000,
    });
    if (bytes.length === 0) throw new Error(`"${wanted}" did not come: ${text} ${JSON.stringify(status)}`);
    text += bytes.toString();
  }
  return text;
}

/** Whether a process of this sandbox has this command line. */
function isNamed(words: string): boolean {
  return readdirSync('/proc').some((pid) => {
    if (!/^[0-9]+$/.test(pid)) return false;
    try {
      const isOurs = readFileSync(`/proc/${pid}/environ`, 'utf8').includes(host.agentSession);
      return isOurs && readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ') === words;
    } catch {
      return false;
    }
  });
}

describe.skipIf(BUSYBOX === null)('durable processes', () => {
  test('a process gets its input, and its output, errors and exit code are read by offset', async () => {
    const id = await start('read a; echo "got $a"; echo oops >&2; cat; exit 7');
    expect(await channel.write(id, 0, Buffer.from('one\n'))).toEqual({ accepted: 4, undecided: false });
    await readUntil(id, 'got one\n');
    // Bytes that were accepted before change nothing.
    expect(await channel.write(id, 0, Buffer.from('one\ntwo\n'))).toEqual({ accepted: 8, undecided: false });
    expect(await channel.write(id, 4, Buffer.from('two\n'))).toEqual({ accepted: 8, undecided: false });
    await expect(channel.write(id, 100, Buffer.from('x'))).rejects.toMatchObject({ code: 'invalid_params' });
    await channel.closeInput(id);
    await expect(channel.write(id, 8, Buffer.from('x'))).rejects.toMatchObject({
      code: 'invalid_state',
    });
    const { text, status } = await readAll(id);
    expect(text).toBe('got one\ntwo\n');
    expect(status).toMatchObject({ state: 'ended', exitCode: 7, damage: null, inputAccepted: 8 });
    expect((await readAll(id, 'stderr')).text).toBe('oops\n');
    expect(await channel.list()).toEqual([id]);
    await channel.remove(id);
    expect(await channel.list()).toEqual([]);
    expect((await channel.status(id)).state).toBe('absent');
    await waitUntil('its files are gone', () => readdirSync(host.path('run/processes')).length === 0);
    expect(readdirSync(host.path('control/processes'))).toEqual([]);
  });

  test('lines of every kind arrive as they are', async () => {
    const id = await start('cat');
    const lines = [
      Buffer.from('back\\slash \\n %s $HOME `x` *\n'),
      Buffer.from('  leading and trailing  \t\n'),
      Buffer.from('\n'),
      Buffer.concat([Buffer.from([0xff, 0xfe, 0x80, 0xc3]), Buffer.from('\n')]),
      Buffer.from('a NUL \0 in it\n'),
      Buffer.from('-n\n'),
      Buffer.from(`${'long'.repeat(2000)}\n`),
      Buffer.from('two\nlines\n'),
      Buffer.from('no newline'),
    ];
    let sent = 0;
    for (const line of lines) sent = (await channel.write(id, sent, line)).accepted;
    await channel.closeInput(id);
    const parts: Buffer[] = [];
    for (let offset = 0; ;) {
      const { bytes, status } = await channel.read({
        id,
        stream: 'stdout',
        offset,
        limit: 65_536,
        waitMs: 5000,
      });
      parts.push(bytes);
      offset += bytes.length;
      if (status.state === 'ended' && offset === status.stdout.end) break;
    }
    expect(Buffer.concat(parts)).toEqual(Buffer.concat(lines));
  });

  test('nothing is lost or sent twice when the sidecar is killed again and again', async () => {
    const id = await start('i=0; while read line; do echo "$line"; done; echo end');
    let sent = 0;
    const lines: string[] = [];
    for (let round = 0; round < 6; round += 1) {
      for (let one = 0; one < 30; one += 1) {
        const line = `line ${lines.length}\n`;
        const writing = channel.write(id, sent, Buffer.from(line));
        if (one === 10 + round * 3) {
          // Killed in the middle of a write; the same bytes are written again.
          await Promise.all([writing.catch(() => undefined), host.replaceSidecar()]);
          await channel.write(id, sent, Buffer.from(line));
        }
        expect((await writing.catch(() => ({ undecided: false }))).undecided).toBe(false);
        sent += line.length;
        lines.push(line);
      }
    }
    await channel.closeInput(id);
    const { text, status } = await readAll(id);
    expect(text).toBe(`${lines.join('')}end\n`);
    expect(status).toMatchObject({ state: 'ended', exitCode: 0, inputAccepted: sent });
  });

  test('output that nobody read while the sidecar died again and again is complete', async () => {
    const id = await start('i=0; while [ $i -lt 20000 ]; do echo "line $i"; i=$((i+1)); done; exit 3');
    for (let round = 0; round < 4; round += 1) {
      await sleep(20);
      await host.replaceSidecar();
    }
    const { text, status } = await readAll(id);
    expect(text).toBe(Array.from({ length: 20_000 }, (_, line) => `line ${line}\n`).join(''));
    expect(status.exitCode).toBe(3);
  });

  test('a process that ended without a sidecar is known to the next one', async () => {
    const id = await start('echo before; sleep 0.2; echo after; exit 5');
    await host.replaceSidecar(() =>
      waitUntil('it has ended', () => existsSync(host.path('run/processes', id, 'exit'))),
    );
    expect(await readAll(id)).toMatchObject({ text: 'before\nafter\n', status: { exitCode: 5 } });
    await host.replaceSidecar();
    expect(await channel.status(id)).toMatchObject({ state: 'ended', exitCode: 5 });
  });

  test('a reader that acknowledges nothing stops the writer, and one that continues lets it continue', async () => {
    const total = PROCESS_LIMITS.unacknowledged + 3_000_000;
    const id = await start(`head -c ${total} /dev/zero; echo done >&2`);
    await waitUntil(
      'it waits',
      async () => (await channel.status(id)).stdout.end === PROCESS_LIMITS.unacknowledged,
    );
    await sleep(200);
    expect(await channel.status(id)).toMatchObject({
      state: 'running',
      stdout: { start: 0, end: PROCESS_LIMITS.unacknowledged },
      stderr: { end: 0 },
    });
    await channel.acknowledge(id, 'stdout', 5_000_000);
    expect((await channel.status(id)).stdout.start).toBe(5_000_000);
    // Trimmed behind the acknowledged offset.
    const { offset } = await channel.read({ id, stream: 'stdout', offset: 0, limit: 10, waitMs: 0 });
    expect(offset).toBe(5_000_000);
    await waitUntil('it has ended', async () => (await channel.status(id)).state === 'ended');
    expect((await channel.status(id)).stdout.end).toBe(total);
    expect((await readAll(id, 'stderr')).text).toBe('done\n');
    expect(readdirSync(host.path('control/processes', id, 'stdout')).length).toBeLessThanOrEqual(16);
  });

  test('input waits for a program that does not read it, up to a limit', async () => {
    const id = await start('sleep 1; wc -c');
    const piece = Buffer.alloc(2 ** 20, 'x');
    let sent = 0;
    await expect(
      (async () => {
        for (;;) sent = (await channel.write(id, sent, piece)).accepted;
      })(),
    ).rejects.toMatchObject({ code: 'overloaded' });
    expect(sent).toBeGreaterThanOrEqual(PROCESS_LIMITS.waitingInput);
    await channel.closeInput(id);
    expect((await readAll(id)).text.trim()).toBe(String(sent));
    expect(readdirSync(host.path('run/processes', id)).filter((name) => name.startsWith('in-'))).toEqual([]);
  });

  test('a signal reaches the program and its children, and KILL those that ignore it', async () => {
    // The child says that it is up: until it runs its own program it has the trap too.
    const id = await start('trap "echo bye; exit 9" TERM; sh -c "echo up; exec sleep 100" & wait');
    await readUntil(id, 'up\n');
    await channel.kill(id, 5000);
    expect(await readAll(id)).toMatchObject({ text: 'up\nbye\n', status: { exitCode: 9 } });
    const deaf = await start('trap "" TERM; echo up; sleep 100; sleep 100');
    await readUntil(deaf, 'up\n');
    await channel.kill(deaf, 200);
    expect((await readAll(deaf)).status.exitCode).toBe(137);
  });

  test('a program that is not there says so', async () => {
    const id = randomId('proc');
    await channel.start({ id, argv: ['no-such-program'], env: {}, cwd: '/' });
    expect((await readAll(id, 'stderr')).text).toContain('no-such-program: not found');
    expect((await channel.status(id)).exitCode).toBe(127);
  });

  test('ended processes that nobody removed are removed for new ones, and running ones are limited', async () => {
    const ended: string[] = [];
    for (let one = 0; one < PROCESS_LIMITS.processes + 2; one += 1) {
      const id = await start('exit 0');
      await readAll(id);
      ended.push(id);
    }
    expect((await channel.list()).toSorted()).toEqual(ended.slice(-PROCESS_LIMITS.processes).toSorted());
    const running = [];
    for (let one = 0; one < PROCESS_LIMITS.processes; one += 1) running.push(await start('sleep 100'));
    await expect(start('exit 0')).rejects.toMatchObject({ code: 'overloaded' });
    for (const id of running) await channel.remove(id);
    expect(await channel.list()).toEqual([]);
  }, 60_000);

  test('starting it again changes nothing', async () => {
    const id = await start('echo once; sleep 100');
    await readUntil(id, 'once\n');
    expect((await channel.start({ id, argv: ['echo', 'twice'], env: {}, cwd: '/' })).state).toBe('running');
    await host.replaceSidecar();
    await start('echo twice', id);
    await channel.kill(id, 0);
    expect((await readAll(id)).text).toBe('once\n');
  });

  test('the exit code of a process is known when its container stops', async () => {
    const id = await start('trap "exit 4" TERM; echo up; while :; do sleep 0.05; done');
    await readUntil(id, 'up\n');
    await host.stopRunner();
    expect((await readAll(id)).status).toMatchObject({ exitCode: 4, damage: null });
  });

  test('a lost feeder leaves the input undecided', async () => {
    const id = await start(`echo $$; sleep 100`);
    await readUntil(id, '\n');
    const feeders = readdirSync('/proc').filter((pid) => {
      if (!/^[0-9]+$/.test(pid)) return false;
      try {
        const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
        return words.includes('feed-process.sh') && words.includes(id);
      } catch {
        return false;
      }
    });
    expect(feeders).toHaveLength(1);
    process.kill(Number(feeders[0]), 'SIGKILL');
    await waitUntil('it is noticed', async () => (await channel.write(id, 0, Buffer.from('x\n'))).undecided);
    await channel.kill(id, 0);
    expect((await readAll(id)).status.state).toBe('ended');
  });

  test('a process whose note cannot be written or read keeps no other from being served', async () => {
    const ended = await start('echo out; read go; exit 6');
    const unknown = await start('echo up; exec sleep 1000');
    const well = await start('echo well; read go; echo "$go"');
    for (const [id, text] of [
      [ended, 'out\n'],
      [unknown, 'up\n'],
      [well, 'well\n'],
    ] as const)
      await readUntil(id, text);
    const note = host.path('control/processes', ended, 'note.json.new');
    await host.replaceSidecar(async () => {
      // The next sidecar finds the disk full when it notes the end.
      symlinkSync('/dev/full', note);
      writeFileSync(host.path('run/processes', ended, 'exit'), '6\n');
      writeFileSync(host.path('control/processes', unknown, 'note.json'), '');
    });
    await channel.write(well, 0, Buffer.from('on\n'));
    expect((await readAll(well)).text).toBe('well\non\n');
    expect((await channel.status(unknown)).state).toBe('absent');
    await waitUntil('it is gone', () => !isNamed('sleep 1000 '));
    expect(await channel.status(ended)).toMatchObject({ state: 'running', stdout: { end: 4 } });
    expect((await readAll(await start('echo another'))).text).toBe('another\n');
    rmSync(note);
    await waitUntil('its end is noted', async () => (await channel.status(ended)).state === 'ended');
    expect((await readAll(ended)).status.exitCode).toBe(6);
  });

  test('an agent that damages the files of its process harms only itself', async () => {
    writeFileSync(host.path('control/secret'), 'of the sidecar');
    const id = await start(`
      cd '${host.path('run/processes')}'/proc-*
      echo before
      read -r _
      rm -f stdout stderr wake
      ln -s '${host.path('control/secret')}' stdout
      ln -s '${host.path('control/secret')}' in-0
      mkfifo stderr
      mkdir exit exit.tmp
      mkfifo exit.tmp/deep
      truncate -s 1T wake
      echo after
      exit 3`);
    // From then on the sidecar has its file open; before, the agent would lose its own output.
    await readUntil(id, 'before\n');
    await channel.write(id, 0, Buffer.from('go\n'));
    const { text, status } = await readAll(id);
    expect(text).toBe('before\nafter\n');
    expect(status.exitCode).toBe(3);
    await channel.remove(id);

    const gone = await start(`rm -rf '${host.path('run/processes')}'; sleep 100`);
    await waitUntil('the damage is known', async () => (await channel.status(gone)).damage !== null);
    await channel.remove(gone);
    expect(await channel.list()).toEqual([]);
    rmSync(host.path('run/processes'), { recursive: true, force: true });
    symlinkSync('/proc', host.path('run/processes'));
    expect((await readAll(await start('echo well'))).text).toBe('well\n');
    mkdirSync(host.path('run/processes/proc-aaaaaaaaaaaaaaaa'));
    expect(await channel.list()).toHaveLength(1);
    expect(readFileSync(host.path('control/secret'), 'utf8')).toBe('of the sidecar');
  });
});
