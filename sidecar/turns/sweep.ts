import { randomBytes } from 'node:crypto';
import { closeSync, readSync } from 'node:fs';
import type { Directory } from '../files/directory.ts';
import { sendLine } from '../files/fifo.ts';
import { type DirectoryWatcher } from './directory-watcher.ts';
import { REQUESTS } from './runner-requests.ts';
import { nextChange } from './wait.ts';

const ANSWER = 'swept';
const ANSWER_BYTES = 100;
const RETRY_MS = 50;

/**
 * Asks the runner to kill everything that the agent started. Returns the number of processes that are left, or null if
 * the runner does not answer in time.
 */
export async function sweepAgent(
  run: Directory,
  changes: DirectoryWatcher,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<number | null> {
  const nonce = randomBytes(16).toString('hex');
  const deadline = performance.now() + timeoutMs;
  for (let isSent = false; ;) {
    isSent ||= sendLine(run, REQUESTS, `sweep ${nonce}`) === 'sent';
    const [answered, left] = readAnswer(run).split(' ');
    if (answered === nonce && /^[0-9]{1,6}$/.test(left ?? '')) return Number(left);
    const rest = deadline - performance.now();
    if (rest <= 0) return null;
    await nextChange(changes, isSent ? rest : Math.min(rest, RETRY_MS), signal);
  }
}

function readAnswer(run: Directory): string {
  const fd = run.openRegularFile(ANSWER);
  if (fd === null) return '';
  try {
    const buffer = Buffer.alloc(ANSWER_BYTES);
    return buffer.toString('latin1', 0, readSync(fd, buffer, 0, ANSWER_BYTES, 0)).trim();
  } finally {
    closeSync(fd);
  }
}
