import { existsSync, readdirSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ContainerPairs } from '../../docker/container-pair.ts';
import { Screen, terminalLaunch } from '../../docker/terminals/screen.ts';
import { waitUntil } from '../../fixtures/sidecar/turns.ts';

let pairs: ContainerPairs;
beforeAll(async () => {
  pairs = await ContainerPairs.create();
});
afterAll(async () => {
  await pairs.dispose();
});

test('what a program does to its run directory reaches nothing outside, and no other terminal', async () => {
  const pair = await pairs.createPair();
  const good = await Screen.open(() => pair.sidecar);
  await good.waitFor('$ ');
  const bad = await Screen.open(() => pair.sidecar);
  await bad.waitFor('$ ');
  await bad.type(
    'cd /run/holdfast/terminals/$HOLDFAST_TERMINAL; echo before > /workspace/victim; echo re""ady\r',
  );
  await bad.waitFor('ready');
  // The client's next keys must not go into a file, nor its output come out of one.
  await bad.type(
    'rm -f input output done; ln -s /workspace/victim input; ln -s /etc/passwd output; mkdir exit.tmp; echo ../../../etc > pts; mkfifo code; ln -s /dev/zero running.tmp; echo se""t\r',
  );
  await bad.waitFor('set').catch(() => undefined);
  const typing = pair.sidecar.writeTerminal(bad.terminalId, Buffer.from('KEYS')).catch(() => undefined);
  await pair.sidecar.resizeTerminal({ terminalId: bad.terminalId, columns: 10, rows: 10 });
  await pair.replaceSidecar();
  await typing;
  const again = pair.sidecar.writeTerminal(bad.terminalId, Buffer.from('KEYS')).catch(() => undefined);
  await good.type('cat /workspace/victim; echo fi""ne\r');
  expect(await good.waitFor('fine')).toContain('before');
  const read = await pair.sidecar.readTerminal({
    terminalId: bad.terminalId,
    offset: 0,
    limit: 2 ** 18,
    waitMs: 1000,
  });
  expect(read.bytes.toString()).not.toContain('root:x:0');
  await pair.sidecar.closeTerminal(bad.terminalId);
  await pair.sidecar.forgetTerminal(bad.terminalId);
  await again;
  await good.type('cat /workspace/victim; echo st""ill\r');
  expect(await good.waitFor('still')).not.toContain('KEYS');
  expect(existsSync(pair.path('run/terminals', bad.terminalId))).toBe(false);
});

test('names that an agent makes are not taken for terminals, however many', async () => {
  const pair = await pairs.createPair();
  const screen = await Screen.open(() => pair.sidecar);
  await screen.type(
    'cd /run/holdfast/terminals; for a in a b c d e f g h i j k l m n o p q r s t u v w x y z; do for b in a b c d e f g h i j k l m n o p q r s t u v w x y z 2 3 4 5 6 7; do mkdir term-aaaaaaaaaaaaaa$a$b; done; done; mkfifo term-aaaaaaaaaaaaaaaa/output; touch term-aaaaaaaaaaaaaaaa/running; echo ma""de\r',
  );
  await screen.waitFor('made', 30_000);
  await pair.replaceSidecar();
  await expect(
    pair.sidecar.readTerminal({ terminalId: 'term-aaaaaaaaaaaaaaaa', offset: 0, limit: 10, waitMs: 0 }),
  ).rejects.toMatchObject({ code: 'not_found' });
  expect(readdirSync(pair.path('control/terminals'))).toEqual([screen.terminalId]);
  await screen.type('echo fi""ne\r');
  await screen.waitFor('fine');
});

test('a folder of terminals that is swapped for a link leads the sidecar nowhere', async () => {
  const pair = await pairs.createPair();
  const first = await Screen.open(() => pair.sidecar);
  await first.type(
    'mkdir /workspace/trap; mv /run/holdfast/terminals /run/holdfast/away; ln -s /workspace/trap /run/holdfast/terminals; echo do""ne\r',
  );
  await first.waitFor('done');
  await pair.replaceSidecar();
  const launch = terminalLaunch();
  await pair.sidecar.openTerminal(launch);
  await waitUntil('another folder', () =>
    existsSync(pair.path('run/terminals', launch.terminalId, 'launch')),
  );
  expect(readdirSync(pair.path('workspace/trap'))).toEqual([]);
});

test('bytes that mean something to telnet or to us come out as they are', async () => {
  const pair = await pairs.createPair();
  const screen = await Screen.open(() => pair.sidecar, {
    argv: ['bash', '-c', String.raw`stty -opost; printf '\377\375\001\036\377\377\377\360\036\000end'`],
  });
  await screen.waitForEnd();
  const { bytes } = await pair.sidecar.readTerminal({
    terminalId: screen.terminalId,
    offset: 0,
    limit: 1000,
    waitMs: 0,
  });
  expect(bytes.toString('hex')).toBe(`fffd011efffffff01e00${Buffer.from('end').toString('hex')}`);
});

test('whoever kills all it can reaches its own sandbox only; the next terminal there works', async () => {
  const [one, other] = [await pairs.createPair(), await pairs.createPair()];
  const victim = await Screen.open(() => other.sidecar);
  await victim.waitFor('$ ');
  const killer = await Screen.open(() => one.sidecar);
  await killer.type(
    'ls -d /run/holdfast/terminals/* /dev/pts/*; cat /proc/*/environ 2>/dev/null | tr "\\0" "\\n" | grep HOLDFAST_SESSION | sort -u; echo li""sted\r',
  );
  const seen = await killer.waitFor('listed');
  expect(seen).not.toContain(victim.terminalId);
  expect(seen).not.toContain(other.session);
  await killer.type('trap "" HUP TERM; kill -9 -1\r');
  await killer.waitForEnd();
  await victim.type('echo al""ive\r');
  await victim.waitFor('alive');
});

test('keys that nobody reads wait without filling the memory, and the terminal can still be closed', async () => {
  const pair = await pairs.createPair();
  const screen = await Screen.open(() => pair.sidecar, {
    argv: ['bash', '-c', 'stty raw -echo; echo ready; exec sleep 600'],
  });
  await screen.waitFor('ready');
  const before = await pair.sidecarMemory();
  let refused = 0;
  const typing = Array.from({ length: 200 }, () =>
    pair.sidecar.writeTerminal(screen.terminalId, Buffer.alloc(2 ** 18, 'k')).catch(() => {
      refused += 1;
    }),
  );
  await waitUntil('no more is taken', () => refused > 190);
  expect((await pair.sidecarMemory()) - before).toBeLessThan(150 * 2 ** 20);
  await pair.sidecar.closeTerminal(screen.terminalId);
  expect(await screen.waitForEnd()).toBe(129);
  await Promise.all(typing);
});
