import { z } from 'zod';
import { type Limit, LimitSchema, type TurnLaunch, type TurnProgress } from '../wire.ts';
import type { DirectoryWatcher } from './directory-watcher.ts';
import type { RunDirectory } from './run-directory.ts';
import type { TurnFiles } from './turn-files.ts';

const WorkerSchema = z.object({
  id: z.string().regex(/^w-[a-z0-9]{1,38}$/),
  reused: z.boolean(),
  startMs: z.number().nonnegative().nullable(),
});

/**
 * How long another file may occupy the name of the exit code or the answer. The runner replaces it when the turn ends;
 * a file that stays longer hides the end.
 */
const DAMAGE_MS = 2000;

/**
 * An exit code, or `-` if it is not known, followed by the limits that were reached. See `turns/TURN/exit` in
 * `wire.ts`.
 */
const EXIT = /^([0-9]{1,3}|-)((?: [a-z]+)*)\n\s*$/;

/** One turn, read from its directory. */
export class Turn {
  readonly id: string;
  readonly kind: TurnLaunch['kind'];
  readonly freshTmp: boolean;
  readonly files: TurnFiles;
  readonly watcher: DirectoryWatcher;
  readonly #run: RunDirectory;
  /** Since when another file occupies the name of the exit code or the answer (monotonic clock, ms). */
  #damagedSince: number | null = null;
  /** When a reader was last notified of more output (monotonic clock, ms). */
  reportedAt = -Infinity;
  /** How often the request was sent, and when to send it again (monotonic clock, ms). */
  sendCount = 0;
  resendAt = 0;

  constructor(options: {
    readonly id: string;
    readonly kind: TurnLaunch['kind'];
    readonly freshTmp: boolean;
    readonly files: TurnFiles;
    readonly changes: DirectoryWatcher;
    readonly run: RunDirectory;
  }) {
    this.id = options.id;
    this.kind = options.kind;
    this.freshTmp = options.freshTmp;
    this.files = options.files;
    this.watcher = options.changes;
    this.#run = options.run;
  }

  /** Reads the current state. The end is read first, so everything written before it is counted. */
  progress(): TurnProgress {
    const end = this.#end();
    const result = this.kind === 'handler' ? this.files.size('result') : 0;
    const ended = end !== null || result > 0;
    const isThere = this.#run.hasTurn(this.id, this.files.directory);
    const state = ended ? 'ended' : !isThere ? 'absent' : this.isClaimed ? 'running' : 'accepted';
    return {
      state,
      stdout: this.files.size('stdout'),
      stderr: this.files.size('stderr'),
      result,
      exitCode: end?.exitCode ?? null,
      limits: end?.limits ?? [],
      worker: this.kind === 'handler' ? this.#worker() : null,
      workerDied: this.kind === 'handler' && end !== null && result === 0,
      diskFull: !ended && this.#run.isFull(),
      damage: ended ? null : this.#damage(),
    };
  }

  /** What hides the end of the turn, once it has done so for a while. */
  #damage(): string | null {
    const name = this.#obstructedName();
    if (name === null) {
      this.#damagedSince = null;
      return null;
    }
    this.#damagedSince ??= performance.now();
    if (performance.now() - this.#damagedSince < DAMAGE_MS) return null;
    return `another file has the name \`${name}\` in the directory of the turn`;
  }

  #obstructedName(): 'exit' | 'result' | null {
    if (this.files.has('exit')) return 'exit';
    return this.kind === 'handler' && this.files.has('result') ? 'result' : null;
  }

  /** A process in the agent's container has claimed it. */
  get isClaimed(): boolean {
    return this.files.has('started');
  }

  close(): void {
    this.watcher.close();
    this.files.close();
  }

  #end(): { exitCode: number | null; limits: Limit[] } | null {
    const [, code, words] = EXIT.exec(this.files.text('exit') ?? '') ?? [];
    if (code === undefined) return null;
    const limits = [...new Set(words?.split(' '))].flatMap((word) => LimitSchema.safeParse(word).data ?? []);
    return { exitCode: code === '-' ? null : Number(code), limits };
  }

  #worker(): TurnProgress['worker'] {
    const text = this.files.text('worker');
    if (text === null) return null;
    try {
      return WorkerSchema.parse(JSON.parse(text));
    } catch {
      return null; // The agent can write this file, and then only the worker is unknown.
    }
  }
}
