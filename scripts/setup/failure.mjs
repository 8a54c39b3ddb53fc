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
  progress.line(`Log: ${setupLog()}`);
}
