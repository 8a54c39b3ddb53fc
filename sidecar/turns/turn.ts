import { fstatSync, lstatSync } from 'node:fs';
import { z } from 'zod';
import type { Directory } from '../files/directory.ts';
import { isAboutTheFile } from '../files/directory.ts';
import type { TurnProgress } from '../wire.ts';
import type { Changes } from './changes.ts';
import type { TurnFiles } from './turn-files.ts';

export type TurnKind = 'command' | 'handler';

const WorkerSchema = z.object({
  id: z.string().regex(/^w-[a-z0-9]{1,38}$/),
  reused: z.boolean(),
  startMs: z.number().nonnegative().nullable(),
});

export const ABSENT: TurnProgress = {
  state: 'absent',
  stdout: 0,
  stderr: 0,
  result: 0,
  exitCode: null,
  worker: null,
  workerDied: false,
};

/** One turn as its directory tells it. */
export class Turn {
  readonly id: string;
  readonly kind: TurnKind;
  readonly freshTmp: boolean;
  readonly files: TurnFiles;
  readonly changes: Changes;
  readonly #turns: Directory;
  /** When somebody was last told that there is more, ms of the monotonic clock. */
  answeredAt = -Infinity;
  /** How often its request was sent, and when to send it again, ms of the monotonic clock. */
  sent = 0;
  sendAgainAt = 0;

  constructor(options: {
    readonly id: string;
    readonly kind: TurnKind;
    readonly freshTmp: boolean;
    readonly files: TurnFiles;
    readonly changes: Changes;
    readonly turns: Directory;
  }) {
    this.id = options.id;
    this.kind = options.kind;
    this.freshTmp = options.freshTmp;
    this.files = options.files;
    this.changes = options.changes;
    this.#turns = options.turns;
  }

  /** Looks now. The end is looked for first: what was written before it is then counted. */
  progress(): TurnProgress {
    const exitCode = this.#exitCode();
    const result = this.kind === 'handler' ? this.files.size('result') : 0;
    const ended = exitCode !== null || result > 0;
    const state = ended ? 'ended' : this.#isReplaced() ? 'absent' : this.isClaimed ? 'running' : 'accepted';
    return {
      state,
      stdout: this.files.size('stdout'),
      stderr: this.files.size('stderr'),
      result,
      exitCode,
      worker: this.kind === 'handler' ? this.#worker() : null,
      workerDied: this.kind === 'handler' && exitCode !== null && result === 0,
    };
  }

  /** Somebody in the agent's container has taken it. */
  get isClaimed(): boolean {
    return this.files.has('started');
  }

  close(): void {
    this.changes.close();
    this.files.close();
  }

  #exitCode(): number | null {
    const text = this.files.text('exit');
    return text !== null && /^[0-9]{1,3}\n$/.test(text) ? Number(text) : null;
  }

  #worker(): TurnProgress['worker'] {
    const text = this.files.text('worker');
    if (text === null) return null;
    try {
      return WorkerSchema.parse(JSON.parse(text));
    } catch {
      return null; // the agent wrote it: not knowing the worker is all that follows
    }
  }

  /** The agent removed or renamed the directory: what runs cannot tell us its end any more. */
  #isReplaced(): boolean {
    try {
      const named = lstatSync(this.#turns.path(this.id), { bigint: true });
      const ours = fstatSync(this.files.directory.fd, { bigint: true });
      return named.ino !== ours.ino || named.dev !== ours.dev;
    } catch (error) {
      if (isAboutTheFile(error)) return true;
      throw error;
    }
  }
}
