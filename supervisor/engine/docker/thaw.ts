import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * `thaw.cjs SOCKET CONTAINER`: a watchdog that outlives the supervisor. The supervisor writes to its stdin once the
 * container is unpaused in order. If stdin closes without that, the supervisor is gone, and the watchdog unpauses the
 * container.
 */
const [socketPath = '', container = ''] = process.argv.slice(2);
/** A restarting engine answers within this time; after that nobody needs the container. */
const TRIES = 120;
const PAUSE_MS = 500;
const ANSWER_MS = 10_000;

interface Answer {
  readonly status: number;
  readonly text: string;
}

/** Null if the engine does not answer. */
function ask(method: 'GET' | 'POST', verb: string): Promise<Answer | null> {
  return new Promise((resolve) => {
    const path = `/containers/${encodeURIComponent(container)}/${verb}`;
    const asked = request({ socketPath, path, method, timeout: ANSWER_MS }, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (part: string) => (text += part));
      answer.on('error', () => resolve(null));
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }));
    });
    asked.on('timeout', () => asked.destroy());
    asked.on('error', () => resolve(null));
    asked.end();
  });
}

/** True if nothing is left to do. The container's state decides, not the text of an error response. */
async function unpause(): Promise<boolean> {
  const answer = await ask('POST', 'unpause');
  if (answer === null) return false;
  if (answer.status < 300 || answer.status === 404) return true;
  const seen = await ask('GET', 'json');
  if (seen === null) return false;
  return seen.status === 404 || (seen.status < 300 && !isPaused(seen.text));
}

function isPaused(text: string): boolean {
  try {
    const facts = JSON.parse(text) as { State?: { Status?: unknown } } | null;
    return facts?.State?.Status === 'paused';
  } catch {
    // Unreadable: ask again.
    return true;
  }
}

let released = false;
process.stdin.on('data', () => (released = true));
process.stdin.on('close', () => {
  void (async () => {
    for (let tries = 0; !released && tries < TRIES; tries += 1) {
      if (await unpause()) break;
      await sleep(PAUSE_MS);
    }
    process.exit(0);
  })();
});
process.stdin.on('error', () => undefined);
