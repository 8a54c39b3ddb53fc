import { createHash } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import type { Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, test } from 'vitest';
import { dialAt, listenAt, removeStaleSocket } from '../../../protocol/client/socket.ts';
import type { SocketLocation } from '../../../protocol/client/socket.ts';

const root = mkdtempSync(join(tmpdir(), 'holdfast-socket-'));
const ends: (() => Promise<void>)[] = [];
let places = 0;

afterEach(async () => {
  for (const end of ends.splice(0)) await end();
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

function newPlace(useProc: boolean, length = 10): SocketLocation {
  const directory = join(root, `${places++}-`.padEnd(length, 'x'));
  mkdirSync(directory, { mode: 0o700 });
  return { directory, name: 'supervisor.sock', useProc };
}

function echo(): Server {
  return createServer((socket) => socket.pipe(socket));
}

async function listen(place: SocketLocation): Promise<() => Promise<void>> {
  const end = await listenAt(echo(), place);
  ends.push(end);
  return end;
}

async function answers(place: SocketLocation): Promise<boolean> {
  const socket = await dialAt(place);
  const said = await new Promise<string>((resolve) => {
    socket.once('data', (data: Buffer) => resolve(data.toString()));
    socket.write('hello');
  });
  socket.destroy();
  return said === 'hello';
}

/** Where the socket of a place with a long path lies when there is no /proc. */
function shortDirectory(place: SocketLocation): string {
  const hash = createHash('sha256').update(join(place.directory, place.name)).digest('hex').slice(0, 16);
  return `/tmp/holdfast-${process.getuid?.() ?? 0}-${hash}`;
}

function openDescriptors(): number {
  return readdirSync('/proc/self/fd').length;
}

test.each([
  ['through /proc, short', true, 10],
  ['through /proc, long', true, 200],
  ['without /proc, short', false, 10],
  ['without /proc, long', false, 200],
])('%s: it listens, is dialled, and leaves nothing behind', async (_what, useProc, length) => {
  const place = newPlace(useProc, length);
  const before = openDescriptors();
  const end = await listenAt(echo(), place);
  expect(await answers(place)).toBe(true);
  const isShort = !useProc && length > 100;
  const file = isShort ? join(shortDirectory(place), 'socket') : join(place.directory, place.name);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  await expect(listenAt(echo(), place)).rejects.toMatchObject({ code: 'EADDRINUSE' });
  await end();
  await expect(dialAt(place)).rejects.toMatchObject({ code: 'ENOENT' });
  expect(existsSync(file)).toBe(false);
  expect(existsSync(shortDirectory(place))).toBe(false);
  expect(openDescriptors()).toBe(before);
});

test.each([true, false])(
  'a long and a short path of one socket connect (through /proc: %s)',
  async (useProc) => {
    const place = newPlace(useProc);
    await listen(place);
    const long = { ...place, directory: `${place.directory}${'/.'.repeat(60)}`, useProc: true };
    expect(await answers(long)).toBe(true);
  },
);

test('the socket of a killed process refuses connections and is removed by the next listener', async () => {
  const place = newPlace(true);
  writeFileSync(join(place.directory, place.name), '');
  await expect(dialAt(place)).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  removeStaleSocket(place);
  await listen(place);
  expect(await answers(place)).toBe(true);
  removeStaleSocket(newPlace(true));
});

test('a new socket with the same descriptor number is not removed', async () => {
  const first = newPlace(true);
  const second = newPlace(true);
  const end = await listenAt(echo(), first);
  await listen(second);
  await end();
  expect(await answers(second)).toBe(true);
});

test('a directory that other users may write to is refused', async () => {
  const place = newPlace(true);
  chmodSync(place.directory, 0o770);
  await expect(listenAt(echo(), place)).rejects.toMatchObject({ code: 'permission_denied' });
  await expect(dialAt(place)).rejects.toMatchObject({ code: 'permission_denied' });
});

test.each([
  ['a link', (path: string) => symlinkSync(root, path)],
  ['a file', (path: string) => writeFileSync(path, '')],
  [
    'open to all',
    (path: string) => {
      mkdirSync(path);
      chmodSync(path, 0o755);
    },
  ],
])('a short directory that is %s is not used', async (_what, squat) => {
  const place = newPlace(false, 200);
  squat(shortDirectory(place));
  try {
    await expect(listenAt(echo(), place)).rejects.toMatchObject({ code: 'permission_denied' });
    await expect(dialAt(place)).rejects.toMatchObject({ code: 'permission_denied' });
  } finally {
    rmSync(shortDirectory(place), { recursive: true });
  }
});

test.runIf(process.getuid?.() === 0)('directories of another user are not used (needs root)', async () => {
  const { chownSync } = await import('node:fs');
  const direct = newPlace(true);
  chownSync(direct.directory, 12_345, 12_345);
  await expect(dialAt(direct)).rejects.toMatchObject({ code: 'permission_denied' });
  const short = newPlace(false, 200);
  mkdirSync(shortDirectory(short), { mode: 0o700 });
  chownSync(shortDirectory(short), 12_345, 12_345);
  try {
    await expect(listenAt(echo(), short)).rejects.toMatchObject({ code: 'permission_denied' });
  } finally {
    rmSync(shortDirectory(short), { recursive: true });
  }
});

test('connecting can be cancelled', async () => {
  const place = newPlace(true);
  await listen(place);
  await expect(dialAt(place, AbortSignal.abort())).rejects.toMatchObject({ code: 'cancelled' });
});
