import { stat } from 'node:fs/promises';
import { HoldfastError } from '../protocol/errors.ts';
import type { Context } from './context.ts';
import { EXIT, describeFailure } from './failure.ts';

/** Editors save a file in several steps, and a branch switch changes many: deploy after this long without a change. */
const DEBOUNCE_MS = 300;
/** Maximum delay after the first change. */
const MAX_DELAY_MS = 3000;
const IGNORED = /(^|\/)(\.git|node_modules|__pycache__|\.venv)(\/|$)/;

/**
 * Deploys now and after every change below `directory`, until ^C. Reports a failed deploy and keeps watching, because
 * the next save may fix it. Changes during a deploy cause one more deploy.
 */
export async function deployAndWatch(
  context: Context,
  directory: string,
  actions: { readonly deploy: () => Promise<void> },
): Promise<number> {
  if (!(await isDirectory(directory))) {
    throw new HoldfastError('file_not_found', `${directory} cannot be watched`, {
      why: 'it is not a directory',
    });
  }
  const { watch } = await import('chokidar');
  const watcher = watch(directory, {
    ignoreInitial: true,
    followSymlinks: false,
    ignored: (path) => IGNORED.test(path.slice(directory.length)),
  });
  const stopped = Promise.withResolvers<number>();
  const release = context.handleInterrupts(() => stopped.resolve(EXIT.cancelled));
  const schedule = new Debounce(async () => {
    try {
      await actions.deploy();
    } catch (error) {
      if (context.stdout.failure !== undefined) {
        stopped.reject(context.stdout.failure);
        return;
      }
      await context.printNote(describeFailure(error).line);
    }
  });
  try {
    watcher.on('all', () => schedule.request());
    watcher.on('error', (error) => stopped.reject(watchFailed(directory, error)));
    await Promise.race([new Promise<void>((ready) => void watcher.once('ready', ready)), stopped.promise]);
    schedule.now();
    await schedule.settled();
    await context.printHint(`Watching ${directory} for changes; press ^C to stop`);
    return await stopped.promise;
  } finally {
    release();
    schedule.close();
    await watcher.close();
  }
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false; // it cannot be watched, whatever the reason
  }
}

function watchFailed(directory: string, error: unknown): HoldfastError {
  const full = error instanceof Error && 'code' in error && error.code === 'ENOSPC';
  return new HoldfastError('internal', `${directory} cannot be watched any more`, {
    why: full
      ? 'this user has no inotify watches left'
      : error instanceof Error
        ? error.message
        : String(error),
    ...(full ? { next: 'raise fs.inotify.max_user_watches' } : {}),
    cause: error,
  });
}

/** Runs `act` after a period without requests, and never twice at the same time. */
export class Debounce {
  readonly #act: () => Promise<void>;
  #timer: NodeJS.Timeout | undefined;
  #firstAt: number | undefined;
  #running: Promise<void> | undefined;
  #again = false;
  #closed = false;

  constructor(act: () => Promise<void>) {
    this.#act = act;
  }

  request(): void {
    if (this.#closed) return;
    if (this.#running !== undefined) {
      this.#again = true;
      return;
    }
    const now = Date.now();
    this.#firstAt ??= now;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => this.now(),
      Math.min(DEBOUNCE_MS, Math.max(0, this.#firstAt + MAX_DELAY_MS - now)),
    );
  }

  now(): void {
    clearTimeout(this.#timer);
    this.#firstAt = undefined;
    if (this.#closed || this.#running !== undefined) return;
    this.#running = this.#act().finally(() => {
      this.#running = undefined;
      if (!this.#again) return;
      this.#again = false;
      this.request();
    });
  }

  /** Resolves when the current run has finished. */
  async settled(): Promise<void> {
    await this.#running;
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }
}
