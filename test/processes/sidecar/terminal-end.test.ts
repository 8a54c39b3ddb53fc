import { execFileSync } from 'node:child_process';
import {
  closeSync,
  constants,
  mkdirSync,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Directory } from '../../../sidecar/files/directory.ts';
import { Scrollback } from '../../../sidecar/terminals/scrollback.ts';
import { Terminal } from '../../../sidecar/terminals/terminal.ts';
import { DirectoryWatcher } from '../../../sidecar/turns/directory-watcher.ts';
import { TurnFiles } from '../../../sidecar/turns/turn-files.ts';

const never = new AbortController().signal;
let root: string;
let terminals: Directory;
let terminal: Terminal;
/** The end of telnetd's, and where its shell hears that all was taken. */
let output: number;
let done: number;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'holdfast-terminal-'));
  mkdirSync(join(root, 'one'));
  execFileSync(
    'mkfifo',
    ['input', 'output', 'done'].map((name) => join(root, 'one', name)),
  );
  output = openSync(join(root, 'one/output'), constants.O_RDWR);
  done = openSync(join(root, 'one/done'), constants.O_RDWR | constants.O_NONBLOCK);
  terminals = Directory.open(root);
});
afterEach(() => {
  terminal.close();
  terminals[Symbol.dispose]();
  closeSync(done);
  rmSync(root, { recursive: true });
});

function say(name: string, text = ''): void {
  writeFileSync(join(root, 'one', name), text);
}

/** The sidecar looks for the first time when its program is over already. */
function met(): Terminal {
  const files = TurnFiles.find(terminals, 'one');
  if (files === null) throw new Error('there is no folder');
  const changes = new DirectoryWatcher(files.directory, () => undefined);
  const scrollback = Scrollback.open(join(root, 'kept'), 2 ** 20);
  return new Terminal({ id: 'one', files, watcher: changes, scrollback, request: () => true });
}

function wasNotified(): boolean {
  try {
    return readSync(done, Buffer.alloc(10)) > 0;
  } catch {
    return false;
  }
}

async function toItsEnd(): Promise<{ text: string; exitCode: number | null }> {
  let text = '';
  for (;;) {
    const { progress, bytes } = await terminal.read(
      { offset: text.length, limit: 1000, waitMs: 1000 },
      never,
    );
    text += bytes.toString();
    if (progress.state === 'ended' && bytes.length === 0) return { text, exitCode: progress.exitCode };
  }
}

test('the output of a short program is stored although it has ended, and the output is late', async () => {
  say('running');
  say('code', '127\n');
  terminal = met();
  await sleep(400);
  expect(wasNotified()).toBe(false);
  writeSync(output, '\x1enot found\r\n');
  await expect.poll(wasNotified).toBe(true);
  say('exit', '127\n');
  closeSync(output);
  expect(await toItsEnd()).toEqual({ text: 'not found\r\n', exitCode: 127 });
});

test('one whose output ends without having begun is over', async () => {
  say('running');
  terminal = met();
  say('exit', '129\n');
  closeSync(output);
  expect(await toItsEnd()).toEqual({ text: '', exitCode: 129 });
});
