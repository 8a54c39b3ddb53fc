import { request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * `thaw.cjs SOCKET CONTAINER`: a process that stays when the supervisor ends. Its input says a word when the container was thawed
 * in order; where it ends without one, whoever froze it is gone, and this thaws it.
 */
const [socketPath = '', container = ''] = process.argv.slice(2);
/** An engine that is starting again answers within this, or nobody needs the container any more. */
const TRIES = 120;
const PAUSE_MS = 500;
const ANSWER_MS = 10_000;

/** True when there is nothing left to do: it runs, or it is no more. */
function unpause(): Promise<boolean> {
  return new Promise((resolve) => {
    const path = `/containers/${encodeURIComponent(container)}/unpause`;
    const asked = request({ socketPath, path, method: 'POST', timeout: ANSWER_MS }, (answer) => {
      let said = '';
      answer.setEncoding('utf8');
      answer.on('data', (text: string) => (said += text));
      answer.on('error', () => resolve(false));
      answer.on('end', () => {
        const { statusCode = 0 } = answer;
        resolve(statusCode < 300 || statusCode === 404 || /not paused|not running/i.test(said));
      });
    });
    asked.on('timeout', () => asked.destroy());
    asked.on('error', () => resolve(false));
    asked.end();
  });
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
