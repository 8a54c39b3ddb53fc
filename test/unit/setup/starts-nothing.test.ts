import { execFileSync, spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { Worker } from 'node:worker_threads';
import { expect, test } from 'vitest';

test.each([
  ['start a process', () => spawn('true')],
  ['start a process', () => execFileSync('true')],
  ['start a thread', () => new Worker('', { eval: true })],
  ['listen on a socket', () => createServer().listen(0)],
])('a unit test cannot %s', (what, act) => {
  expect(act).toThrow(`a unit test must not ${what}: move it to test/processes`);
});
