import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ProcessChannel, ProcessStatus } from '../../supervisor/workspace/process-channel.ts';
import { SidecarProcessChannel } from '../../supervisor/workspace/sidecar-process-channel.ts';
import { randomId, waitUntil } from '../fixtures/sidecar/turns.ts';
import { type ContainerPair, ContainerPairs } from './container-pair.ts';

let bench: ContainerPairs;
beforeAll(async () => {
  bench = await ContainerPairs.create();
});
afterAll(async () => {
  await bench.dispose();
});

function channelOf(pair: ContainerPair): ProcessChannel {
  return new SidecarProcessChannel((use) => use(pair.sidecar));
}

async function start(channel: ProcessChannel, script: string): Promise<string> {
  const id = randomId('proc');
  await channel.start({ id, argv: ['bash', '-c', script], env: {}, cwd: '/workspace' });
  return id;
}

async function readAll(
  channel: ProcessChannel,
  id: string,
): Promise<{ text: string; status: ProcessStatus }> {
  const parts: Buffer[] = [];
  for (let offset = 0; ;) {
    const { bytes, status } = await channel.read({
      id,
      stream: 'stdout',
      offset,
      limit: 2 ** 20,
      waitMs: 5000,
    });
    parts.push(bytes);
    offset += bytes.length;
    await channel.acknowledge(id, 'stdout', offset);
    if (status.state === 'ended' && offset === status.stdout.end) {
      return { text: Buffer.concat(parts).toString(), status };
    }
  }
}

test('a conversation with a process continues over the deaths of sidecars, each line once', async () => {
  const pair = await bench.createPair();
  const channel = channelOf(pair);
  const id = await start(channel, 'while read -r line; do echo "got $line"; done; exit 6');
  let sent = 0;
  for (let round = 0; round < 3; round += 1) {
    for (let one = 0; one < 20; one += 1) {
      const line = Buffer.from(`${round} ${one}\n`);
      const writing = channel.write(id, sent, line).catch(() => null);
      if (one === 7 * round) {
        await pair.replaceSidecar(() => writing.then(() => undefined));
        expect(await channel.write(id, sent, line)).toMatchObject({ undecided: false });
      }
      await writing;
      sent += line.length;
    }
  }
  await channel.closeInput(id);
  const { text, status } = await readAll(channel, id);
  expect(text).toBe(
    [0, 1, 2].flatMap((round) => Array.from({ length: 20 }, (_, one) => `got ${round} ${one}\n`)).join(''),
  );
  expect(status).toMatchObject({ exitCode: 6, inputAccepted: sent });
});

test('50 MB pass through in order while sidecars die', async () => {
  const pair = await bench.createPair();
  const channel = channelOf(pair);
  const id = await start(channel, 'seq 1 6500000');
  let offset = 0;
  let text = '';
  let next = 1;
  let deaths = 0;
  for (;;) {
    const { bytes, status } = await channel.read({
      id,
      stream: 'stdout',
      offset,
      limit: 2 ** 20,
      waitMs: 5000,
    });
    offset += bytes.length;
    await channel.acknowledge(id, 'stdout', offset);
    const lines = (text + bytes.toString('latin1')).split('\n');
    text = lines.pop() ?? '';
    for (const line of lines)
      if (Number(line) !== next++) throw new Error(`${line} came instead of ${next - 1}`);
    if (offset > (deaths + 1) * 12_000_000 && deaths < 3) {
      deaths += 1;
      await pair.replaceSidecar();
    }
    if (status.state === 'ended' && offset === status.stdout.end) break;
  }
  expect([next - 1, deaths]).toEqual([6_500_000, 3]);
});

test('a process whose container is killed has ended, with what it printed before', async () => {
  const pair = await bench.createPair();
  const channel = channelOf(pair);
  const id = await start(channel, 'echo before; sleep 100');
  await channel.read({ id, stream: 'stdout', offset: 0, limit: 100, waitMs: 5000 });
  await pair.killAgent();
  expect(await readAll(channel, id)).toMatchObject({
    text: 'before\n',
    status: { state: 'ended', exitCode: null },
  });
  await channel.remove(id);
  expect(await channel.list()).toEqual([]);
});

test('an agent that freezes, kills and forges around its process harms only itself', async () => {
  const pair = await bench.createPair();
  const channel = channelOf(pair);
  writeFileSync(pair.path('control/secret'), 'of the sidecar', { mode: 0o644 });
  const id = await start(
    channel,
    `cd /run/holdfast/processes/$HOLDFAST_PROCESS
     echo 5 > exit.tmp
     rm -f in-* note.json
     for i in $(seq 0 50); do ln -s /ctl/secret in-$i; done
     mkfifo in-60; mkdir in-70
     (sleep 0.3; truncate -s 1T /run/holdfast/processes/huge; head -c 300000 /dev/zero > done) &
     yes 'close' | head -c 60000 > wake
     echo told
     sleep 1
     exit 3`,
  );
  for (let offset = 0; offset < 80;) {
    try {
      offset = (await channel.write(id, offset, Buffer.alloc(10, 'y'))).accepted;
    } catch (error) {
      expect(error).toMatchObject({ code: /^(sandbox_lost|invalid_state)$/ });
      break;
    }
    if ((await channel.status(id)).state === 'ended') break;
  }
  const { text, status } = await readAll(channel, id);
  expect(text).toBe('told\n');
  expect(status.state).toBe('ended');
  await channel.remove(id);

  const killer = await start(channel, 'echo up; kill -9 -1; sleep 0.2; kill -9 $PPID; sleep 100');
  expect((await readAll(channel, killer)).status.state).toBe('ended');
  await channel.remove(killer);
  expect(existsSync(pair.path('run/processes', killer))).toBe(false);
  await waitUntil('nothing of ours is left', () => readdirSync(pair.path('control/processes')).length === 0);
  expect(readFileSync(pair.path('control/secret'), 'utf8')).toBe('of the sidecar');
});

test('a process that a sweep has killed has ended when the sweep is over', async () => {
  const pair = await bench.createPair();
  const channel = channelOf(pair);
  const id = await start(channel, 'echo up; sleep 1000');
  await channel.read({ id, stream: 'stdout', offset: 0, limit: 100, waitMs: 5000 });
  expect(await pair.sidecar.sweepAgent(10_000)).toBe(0);
  expect(await channel.status(id)).toMatchObject({ state: 'ended', exitCode: null, stdout: { end: 3 } });
  expect(await readAll(channel, await start(channel, 'echo next'))).toMatchObject({ text: 'next\n' });
});
