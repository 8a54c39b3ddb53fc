import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { SidecarClient } from '../../../supervisor/workspace/sidecar-client.ts';
import { soakCount } from '../../setup/run-length.ts';
import { waitUntil } from '../../fixtures/sidecar/turns.ts';
import { ContainerPairs, type ContainerPair } from '../container-pair.ts';
import { Screen } from './screen.ts';

/** Of a window that is dragged while its terminal is frozen. */
const SIZES = soakCount(300, 3000);

let bench: ContainerPairs;
/** For tests that leave it as it was, but for what they left running. */
let shared: ContainerPair;
beforeAll(async () => {
  bench = await ContainerPairs.create();
  shared = await bench.createPair();
});
afterAll(async () => {
  await bench.dispose();
});

/** Until a terminal that has said something says no more. */
async function atRest(client: SidecarClient, terminalId: string): Promise<void> {
  let before = -1;
  await waitUntil(
    'it says no more',
    async () => {
      const { total } = await client.terminalProgress(terminalId, 0);
      if (total > 0 && total === before) return true;
      before = total;
      await sleep(500);
      return false;
    },
    30_000,
  );
}

test('a shell has a real terminal in /workspace: size, Unicode, job control, exit code', async () => {
  const screen = await Screen.open(() => shared.sidecar, { columns: 101, rows: 33 });
  await screen.waitFor('$ ');
  expect(screen.text).not.toMatch(/^\s*\r/);
  await screen.type('tty; pwd; stty size; stty -a | grep -o .iutf8; echo $TERM\r');
  const said = await screen.waitFor('xterm-256color');
  expect(said).toMatch(/\/dev\/pts\/\d+\r\n\/workspace\r\n33 101\r\n iutf8/);

  await screen.type('printf "%s|\\n" "žluťoučký 🐎 日本語"\r');
  await screen.waitFor('\ržluťoučký 🐎 日本語|\r\n');
  await screen.type(Buffer.from('echo re""ady; head -c 2 | od -An -tx1\r'));
  await screen.waitFor('ready');
  await screen.type(Buffer.from([0xff, 0x41, 0x0a]));
  await screen.waitFor(' ff 41');

  await screen.waitForPrompt();
  const asleep = async (how: RegExp): Promise<void> => {
    await waitUntil('it sleeps', async () => (await shared.processes()).some((line) => how.test(line)));
  };
  await screen.type('sleep 600\r');
  await asleep(/^S\S*\+ sleep 600/);
  await screen.type('\x1a');
  await screen.waitFor('Stopped');
  await screen.waitForPrompt();
  await screen.type('fg\r');
  await asleep(/^S\S*\+ sleep 600/);
  await screen.type('\x03');
  await screen.waitForPrompt();
  await screen.type('echo code $?\r');
  await screen.waitFor('code 130');

  await screen.type('exit 7\r');
  expect(await screen.waitForEnd()).toBe(7);
  expect((await shared.processes()).filter((line) => /telnetd|terminal\.sh|bash/.test(line))).toEqual([]);
});

test('it can be resized while a program runs, and while the agent is paused', async () => {
  const screen = await Screen.open(() => shared.sidecar, {
    argv: ['bash', '-c', 'trap "stty size" WINCH; echo ready; while :; do sleep 0.05; done'],
  });
  await screen.waitFor('ready');
  await shared.sidecar.resizeTerminal({ terminalId: screen.terminalId, columns: 120, rows: 40 });
  await screen.waitFor('40 120');
  await shared.freeze();
  for (let columns = 1; columns <= SIZES; columns += 1) {
    await shared.sidecar.resizeTerminal({ terminalId: screen.terminalId, columns, rows: 50 });
  }
  await shared.thaw();
  await screen.waitFor(`50 ${String(SIZES)}`);
  await shared.sidecar.closeTerminal(screen.terminalId);
  expect(await screen.waitForEnd()).toBe(129);
});

test('a slow reader gets all output, and background processes do not keep the terminal open', async () => {
  const screen = await Screen.open(() => shared.sidecar, {
    argv: ['bash', '-c', '(trap "" HUP; sleep 600) & seq 1 60000; exit 3'],
  });
  // It has got as far as it gets while nobody reads.
  await atRest(shared.sidecar, screen.terminalId);
  await screen.waitFor('\r\n59999\r\n60000\r\n');
  expect(await screen.waitForEnd()).toBe(3);
  expect(screen.text.trim().split('\r\n')).toEqual(Array.from({ length: 60000 }, (_, n) => String(n + 1)));
});

test('process and scrollback survive a kill of the sidecar', async () => {
  const pair = await bench.createPair();
  const screen = await Screen.open(() => pair.sidecar);
  await screen.waitForPrompt();
  await screen.type('variable=kept; echo be""fore\r');
  await screen.waitFor('before');
  await pair.replaceSidecar();
  await screen.type('echo $variable\r');
  await screen.waitFor('\rkept\r\n');
  await screen.waitForPrompt();
  const again = new Screen(() => pair.sidecar, screen.terminalId);
  await again.waitFor('\rkept\r\n');
  await again.waitForPrompt();
  expect(again.text).toBe(screen.text);
  expect(again.text).toContain('\rbefore\r\n');

  await screen.type('exit 5\r');
  await waitUntil('its exit code is told', () =>
    existsSync(pair.path('run/terminals', screen.terminalId, 'code')),
  );
  await pair.replaceSidecar();
  expect(await screen.waitForEnd()).toBe(5);
});

test('a terminal ends with its container, and its output can still be read', async () => {
  const pair = await bench.createPair();
  const screen = await Screen.open(() => pair.sidecar);
  await screen.type('echo la""st\r');
  await screen.waitFor('last');
  await pair.killAgent();
  expect(await screen.waitForEnd()).toBeNull();
  await pair.sidecar.forgetTerminal(screen.terminalId);
  await expect(new Screen(() => pair.sidecar, screen.terminalId).waitForEnd()).rejects.toThrow(/no terminal/);
});

test('a line of a gigabyte takes bounded disk and memory, and ^C interrupts it', async () => {
  const screen = await Screen.open(() => shared.sidecar);
  await screen.waitFor('$ ');
  await screen.type('head -c 1G /dev/zero | tr "\\0" x\r');
  await screen.waitFor('\rxxxxxxxx');
  const before = screen.offset;
  await atRest(shared.sidecar, screen.terminalId);
  const { total, start } = await shared.sidecar.terminalProgress(screen.terminalId, 0);
  // Nobody reads: it has stopped a little ahead of us.
  expect(total - before).toBeLessThan(2 ** 20);
  expect(total - start).toBeLessThanOrEqual(2 ** 21);
  await screen.type('\x03');
  await screen.waitFor('^C');
  await screen.type('echo af""ter\r');
  await screen.waitFor('after');
  // Long before the line is over.
  expect(screen.offset - before).toBeLessThan(2 ** 29);
  expect(await shared.sidecarMemory()).toBeLessThan(200 * 2 ** 20);
});

test('a terminal without a reader continues, and keeps the end of its output', async () => {
  const screen = await Screen.open(() => shared.sidecar, {
    argv: ['bash', '-c', 'head -c 4M /dev/zero | tr "\\0" x; echo; echo the end'],
  });
  let ended = await shared.sidecar.terminalProgress(screen.terminalId, 0);
  for (let tries = 0; ended.state !== 'ended' && tries < 20; tries += 1)
    ended = await shared.sidecar.terminalProgress(screen.terminalId, 2000);
  expect(ended.exitCode).toBe(0);
  expect(ended.total).toBeGreaterThan(4 * 2 ** 20);
  expect(ended.total - ended.start).toBeLessThanOrEqual(2 ** 21);
  await screen.waitFor('the end');
  expect(screen.text.length).toBeLessThanOrEqual(2 ** 21);
});

test('an image without a shell gets ours; a missing program is reported', async () => {
  const image = await bench.buildImage({});
  const pair = await bench.createPair({ image });
  const shell = await Screen.open(() => pair.sidecar);
  await shell.type('echo $0; exit 4\r');
  await shell.waitFor('sh');
  expect(await shell.waitForEnd()).toBe(4);
  const missing = await Screen.open(() => pair.sidecar, { argv: ['no-such-program'] });
  await missing.waitFor('holdfast: no-such-program: not found');
  expect(await missing.waitForEnd()).toBe(127);
});
