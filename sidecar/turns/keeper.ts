import { randomBytes } from 'node:crypto';
import { HoldfastError } from '../../protocol/errors.ts';
import { isPathError } from '../files/directory.ts';
import { hasReader, sendLine } from '../files/fifo.ts';
import { ABSENT_TURN, type TurnLaunch, type TurnProgress } from '../wire.ts';
import { DirectoryWatcher, type WatchMode } from './directory-watcher.ts';
import { type AgentPaths, launchScript, workerCommand } from './launch-script.ts';
import { RunDirectory } from './run-directory.ts';
import { REQUESTS } from './runner-requests.ts';
import { Turn } from './turn.ts';
import { sweepAgent } from './sweep.ts';
import { type Stream, TurnFiles } from './turn-files.ts';
import { delay, nextChange } from './wait.ts';

/** While output grows, a reader gets at most one answer per turn in this time, not one for every line. */
const OUTPUT_INTERVAL_MS = 10;
const MAX_WAIT_MS = 60_000;
const MAX_READ = 2 ** 20;
/** Interval of the checks on turns under way. */
const CHECK_MS = 1000;
/**
 * A request that no process has claimed is sent again after this delay, which doubles. Repetition is safe: a turn is
 * claimed once.
 */
const RESEND_MS = { first: 1000, most: 10_000 } as const;
/** A warm worker is replaced when it has not claimed a turn after this many requests. */
const WORKER_REQUESTS = 3;
const CHECK_TICKS = 2;
/** How often the run directory is repaired for one turn. */
const REPAIR_TRIES = 3;
/** The runner overwrites this with the exit code and renames the file, so a full disk does not lose the code. */
const EXIT_PLACEHOLDER = ' '.repeat(63) + '\n';
const UNPUBLISHED = '.tmp';
/** How long a request waits when the FIFO is full. */
const FIFO_TIMEOUT_MS = 2000;

const SIGNALS = new Set(['HUP', 'INT', 'QUIT', 'KILL', 'TERM', 'USR1', 'USR2', 'STOP', 'CONT']);

export interface TurnsOptions extends AgentPaths {
  /** The run directory, which is a mount point. */
  readonly run: string;
}

/** Runs turns through the run directory: passes them to the runner or the warm worker, and reports their progress. */
export class Turns {
  readonly #run: RunDirectory;
  readonly #agent: AgentPaths;
  readonly #changes: DirectoryWatcher;
  readonly #known = new Map<string, Turn>();
  readonly #active = new Set<Turn>();
  #tick: NodeJS.Timeout | undefined;
  #ticks = 0;
  #mode: WatchMode = 'inotify';

  constructor(options: TurnsOptions) {
    this.#agent = options;
    this.#run = new RunDirectory(options.run);
    const onMode = (mode: WatchMode): void => {
      this.#mode = mode;
    };
    this.#changes = new DirectoryWatcher(this.#run.root, onMode);
    this.#run.sweep();
  }

  get watchMode(): WatchMode {
    return this.#mode;
  }

  /** True once the runner has opened its FIFO. */
  async waitUntilAgentReady(timeoutMs: number, signal: AbortSignal): Promise<boolean> {
    const deadline = performance.now() + Math.min(timeoutMs, MAX_WAIT_MS);
    for (;;) {
      if (hasReader(this.#run.root, REQUESTS)) return true;
      const left = deadline - performance.now();
      if (left <= 0) return false;
      await nextChange(this.#changes, Math.min(left, 50), signal);
    }
  }

  /** See `agent/sweep`. */
  async sweep(timeoutMs: number, signal: AbortSignal): Promise<number | null> {
    this.#run.repair();
    return await sweepAgent(this.#run.root, this.#changes, Math.min(timeoutMs, MAX_WAIT_MS), signal);
  }

  /**
   * Starts a turn. If it exists already, only reports its progress, and sends the request again if no process has
   * claimed it.
   */
  launch(launch: TurnLaunch, input: Uint8Array): TurnProgress {
    const turn = this.#find(launch.turnId) ?? this.#create(launch, input);
    const before = turn.progress();
    if (before.state !== 'accepted') return before;
    this.#send(turn);
    this.#monitor(turn);
    return turn.progress();
  }

  async progress(
    asked: { turnId: string; stdout: number; stderr: number; waitMs: number },
    signal: AbortSignal,
  ): Promise<TurnProgress> {
    const deadline = performance.now() + Math.min(asked.waitMs, MAX_WAIT_MS);
    for (;;) {
      const turn = this.#find(asked.turnId);
      if (turn === null) return ABSENT_TURN;
      const progress = turn.progress();
      if (progress.state !== 'accepted' && progress.state !== 'running') return progress;
      this.#monitor(turn);
      if (progress.damage !== null) return progress;
      const now = performance.now();
      const early = turn.reportedAt + OUTPUT_INTERVAL_MS - now;
      const grown = progress.stdout > asked.stdout || progress.stderr > asked.stderr;
      if (now >= deadline || (grown && early <= 0)) {
        turn.reportedAt = now;
        return progress;
      }
      if (grown) await delay(Math.min(early, deadline - now), signal);
      else await nextChange(turn.watcher, deadline - now, signal);
    }
  }

  /** Errors: `not_found`. Returns no bytes beyond the end, or if the agent left no readable file. */
  read(turnId: string, stream: Stream, offset: number, limit: number): { bytes: Buffer; total: number } {
    const turn = this.#find(turnId);
    if (turn === null)
      throw new HoldfastError('not_found', `There is no turn ${turnId} in the run directory`);
    const bytes = turn.files.read(stream, offset, Math.min(limit, MAX_READ));
    return { bytes, total: turn.files.size(stream) };
  }

  async kill(turnId: string, graceMs: number, signal: AbortSignal): Promise<void> {
    await this.#request(`kill ${turnId} ${Math.max(0, Math.min(graceMs, 600_000))}`, signal);
  }

  async killExec(exec: string, name: string, signal: AbortSignal): Promise<void> {
    const plain = name.replace(/^SIG/, '');
    if (!/^exec-[a-z2-7]{16}$/.test(exec) || !SIGNALS.has(plain)) {
      throw new HoldfastError('invalid_params', `${name} cannot be sent to ${exec}`, {
        why: `signals are ${[...SIGNALS].join(', ')}`,
      });
    }
    await this.#request(`execkill ${exec} ${plain}`, signal);
  }

  remove(turnId: string): void {
    const turn = this.#find(turnId);
    if (turn === null) return;
    const { state } = turn.progress();
    // An unclaimed turn is claimed here, so that no process starts it. A `kill` request could also hit a repeated
    // launch of the turn.
    const isWithdrawn = state === 'accepted' && turn.files.claim();
    // A running turn is killed first: nothing may write to a directory that has been removed.
    if (state !== 'ended' && !isWithdrawn) sendLine(this.#run.root, REQUESTS, `kill ${turnId} 0`);
    this.#known.delete(turnId);
    this.#active.delete(turn);
    turn.close();
    this.#run.remove(turnId);
  }

  list(): string[] {
    return this.#run.list();
  }

  close(): void {
    clearInterval(this.#tick);
    this.#tick = undefined;
    this.#changes.close();
    for (const turn of this.#known.values()) turn.close();
    this.#known.clear();
    this.#active.clear();
    this.#run.close();
  }

  #create(launch: TurnLaunch, input: Uint8Array): Turn {
    const argv = launch.kind === 'handler' ? workerCommand(launch.entry ?? '', this.#agent) : launch.argv;
    const contents = {
      launch: Buffer.from(launchScript(launch, argv)),
      input,
      kind: Buffer.from(`${launch.kind}${launch.freshTmp ? ' tmp' : ''}\n`),
      [`exit${UNPUBLISHED}`]: Buffer.from(EXIT_PLACEHOLDER),
    };
    const files = this.#repaired(() => TurnFiles.create(this.#run.turns, launch.turnId, contents));
    return this.#adopt(launch.turnId, launch.kind, launch.freshTmp, files);
  }

  /** Repairs the run directory and calls `make`. A process of the agent may be damaging it at the same time. */
  #repaired<T>(make: () => T): T {
    for (let tries = 1; ; tries += 1) {
      try {
        this.#run.repair();
        return make();
      } catch (error) {
        if (!isPathError(error)) throw error;
        if (tries < REPAIR_TRIES) continue;
        throw new HoldfastError('sandbox_lost', 'The turn cannot be handed to the sandbox', {
          why: 'a process in the sandbox keeps removing or replacing its run directory',
          details: { runDirectory: 'damaged' },
          cause: error,
        });
      }
    }
  }

  /** A known turn, or one that an earlier sidecar left in the run directory. */
  #find(turnId: string): Turn | null {
    const known = this.#known.get(turnId);
    if (known !== undefined) return known;
    const files = TurnFiles.find(this.#run.turns, turnId);
    if (files === null) return null;
    const [kind, tmp] = (files.text('kind') ?? '').trim().split(' ');
    return this.#adopt(turnId, kind === 'handler' ? 'handler' : 'command', tmp === 'tmp', files);
  }

  #adopt(id: string, kind: TurnLaunch['kind'], freshTmp: boolean, files: TurnFiles): Turn {
    const changes = new DirectoryWatcher(files.directory, (mode) => {
      this.#mode = mode;
    });
    const turn = new Turn({ id, kind, freshTmp, files, changes, run: this.#run });
    this.#known.set(id, turn);
    return turn;
  }

  #send(turn: Turn): void {
    const wait = Math.min(RESEND_MS.first * 2 ** turn.sendCount, RESEND_MS.most);
    turn.sendCount += 1;
    turn.resendAt = performance.now() + wait;
    if (turn.kind === 'command') {
      sendLine(this.#run.root, REQUESTS, `start ${turn.id}`);
      return;
    }
    if (turn.sendCount <= WORKER_REQUESTS) {
      const line = turn.freshTmp ? `${turn.id} tmp` : turn.id;
      if (sendLine(this.#run.worker, REQUESTS, line) !== 'nobody') return;
    }
    sendLine(this.#run.root, REQUESTS, `worker start w-${randomBytes(8).toString('hex')} ${turn.id}`);
  }

  /** Checks turns under way at intervals, because a request is lost with the process that was to read it. */
  #monitor(turn: Turn): void {
    this.#active.add(turn);
    this.#tick ??= setInterval(() => this.#checkTurns(), CHECK_MS);
  }

  #checkTurns(): void {
    this.#ticks += 1;
    for (const turn of this.#active) {
      const { state } = turn.progress();
      if (state === 'ended' || state === 'absent') this.#active.delete(turn);
      else if (state === 'accepted' && performance.now() >= turn.resendAt) this.#send(turn);
      else if (state === 'running' && this.#ticks % CHECK_TICKS === 0) {
        sendLine(this.#run.root, REQUESTS, `check ${turn.id}`);
      }
    }
    if (this.#active.size > 0) return;
    clearInterval(this.#tick);
    this.#tick = undefined;
  }

  /** Sends one line to the runner. */
  async #request(line: string, signal: AbortSignal): Promise<void> {
    const deadline = performance.now() + FIFO_TIMEOUT_MS;
    for (;;) {
      switch (sendLine(this.#run.root, REQUESTS, line)) {
        case 'sent':
          return;
        case 'nobody':
          throw new HoldfastError('sandbox_lost', "The agent's container does not answer", {
            why: 'its main process has not opened its request FIFO',
          });
        case 'full':
          if (performance.now() < deadline) break;
          throw new HoldfastError('timeout', "The agent's container does not answer", {
            why: 'its main process no longer reads its request FIFO',
          });
      }
      await delay(50, signal);
    }
  }
}
