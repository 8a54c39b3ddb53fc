import { appendFileSync } from 'node:fs';
import { SetupError, reasonOf, setupLog } from './project.mjs';

/** Says what failed, what to do and where the log is. @param {import('./progress.mjs').Progress} progress @param {unknown} error */
export function reportFailure(progress, error) {
  process.exitCode = 1;
  progress.line('');
  if (error instanceof SetupError) {
    const cause = error.cause === undefined ? '' : ` (${reasonOf(error.cause)})`;
    progress.line(`${error.message}${cause}`);
    progress.line(`→ ${error.next}`);
  } else {
    progress.line(error instanceof Error ? (error.stack ?? error.message) : String(error));
  }
  const log = setupLog();
  const whole = error instanceof Error ? (error.stack ?? error.message) : String(error);
  appendFileSync(log, `${new Date().toISOString()} ${whole}\n`, { mode: 0o600 });
  progress.line(`Log: ${log}`);
}
