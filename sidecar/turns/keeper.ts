import { randomBytes } from 'node:crypto';
import { HoldfastError } from '../../protocol/errors.ts';
import { isPathError } from '../files/directory.ts';
import { hasReader, sendLine } from '../files/fifo.ts';
import type { TurnLaunch, TurnProgress } from '../wire.ts';
import { DirectoryWatcher, type WatchMode } from './directory-watcher.ts';
import { type AgentPaths, launchScript, workerCommand } from './launch-script.ts';
import { RunDirectory } from './run-directory.ts';
import { ABSENT_TURN, Turn, type TurnKind } from './turn.ts';
import { type Stream, TurnFiles } from './turn-files.ts';
import { delay, nextChange } from './wait.ts';

const REQUESTS = 'requests';
/** One answer per turn in this time while output grows: a reader is not woken for every line. */
const GROWTH_MS = 10;
const MOST_WAIT_MS = 60_000;
const MOST_READ = 2 ** 20;
/** How often turns under way are looked after. */
const TICK_MS = 1000;
/** A request that nobody has taken is sent again after this, then more and more seldom. A turn is claimed once, so twice is once. */
const SEND_AGAIN_MS = { first: 1000, most: 10_000 } as const;
/** A warm worker that has not taken a turn after this many requests is replaced. */
const WORKER_CHANCES = 3;
const CHECK_TICKS = 2;
/** How often the run directory is repaired for one turn. */
const REPAIR_TRIES = 3;
/** The runner writes its exit code over this, and renames the file: neither needs room on a full disk. */
const EXIT_ROOM = ' '.repeat(63) + '\n';
const UNPUBLISHED = '.tmp';
/** How long a request waits for room in a FIFO that is full. */
const ROOM_MS = 2000;

const SIGNALS = new Set(['HUP', 'INT', 'QUIT', 'KILL', 'TERM', 'USR1', 'USR2', 'STOP', 'CONT']);

export interface KeeperOptions extends AgentPaths {
  /** The run directory: a mount point. */
  readonly run: string;
}

/** Keeper of the run directory: hands turns to the runner and the warm worker, and tells how far they are. */
export class Keeper {
  readonly #run: RunDirectory;
  readonly #agent: AgentPaths;
  readonly #changes: DirectoryWatcher;
  readonly #known = new Map<string, Turn>();
  readonly #underWay = new Set<Turn>();
  #tick: NodeJS.Timeout | undefined;
  #ticks = 0;
  #mode: WatchMode = 'inotify';

  constructor(options: KeeperOptions) {
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

  /** True once the runner listens. */
  async waitUntilAgentReady(timeoutMs: number, signal: AbortSignal): Promise<boolean> {
    const deadline = performance.now() + Math.min(timeoutMs, MOST_WAIT_MS);
    for (;;) {
      if (hasReader(this.#run.root, REQUESTS)) return true;
      const left = deadline - performance.now();
      if (left <= 0) return false;
      await nextChange(this.#changes, Math.min(left, 50), signal);
    }
  }

  /** Starts a turn. For one that is there already it only reports, and repeats a request that nobody has taken yet. */
  launch(launch: TurnLaunch, input: Uint8Array): TurnProgress {
    const turn = this.#find(launch.turnId) ?? this.#create(launch, input);
    const before = turn.progress();
    if (before.state !== 'accepted') return before;
    this.#send(turn);
    this.#lookAfter(turn);
    return turn.progress();
  }

  async progress(
    asked: { turnId: string; stdout: number; stderr: number; waitMs: number },
    signal: AbortSignal,
  ): Promise<TurnProgress> {
    const deadline = performance.now() + Math.min(asked.waitMs, MOST_WAIT_MS);
    for (;;) {
      const turn = this.#find(asked.turnId);
      if (turn === null) return ABSENT_TURN;
      const progress = turn.progress();
      if (progress.state !== 'accepted' && progress.state !== 'running') return progress;
      this.#lookAfter(turn);
      if (progress.damage !== null) return progress;
      const now = performance.now();
      const early = turn.reportedAt + GROWTH_MS - now;
      const grown = progress.stdout > asked.stdout || progress.stderr > asked.stderr;
      if (now >= deadline || (grown && early <= 0)) {
        turn.reportedAt = now;
        return progress;
      }
      if (grown) await delay(Math.min(early, deadline - now), signal);
      else await nextChange(turn.watcher, deadline - now, signal);
    }
  }

  /** Fails with `not_found`. Past the end, and where the agent left no readable file, there are no bytes. */
  read(turnId: string, stream: Stream, offset: number, limit: number): { bytes: Buffer; total: number } {
    const turn = this.#find(turnId);
    if (turn === null)
      throw new HoldfastError('not_found', `There is no turn ${turnId} in the run directory`);
    const bytes = turn.files.read(stream, offset, Math.min(limit, MOST_READ));
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
    // What nobody has taken is claimed here, so that nobody begins it. A line to kill it could reach the same turn handed over again.
    const isWithdrawn = state === 'accepted' && turn.files.claim();
    // Whoever forgets a turn that runs does not want it: nothing may write to a directory that is gone.
    if (state !== 'ended' && !isWithdrawn) sendLine(this.#run.root, REQUESTS, `kill ${turnId} 0`);
    this.#known.delete(turnId);
    this.#underWay.delete(turn);
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
    this.#underWay.clear();
    this.#run.close();
  }

  #create(launch: TurnLaunch, input: Uint8Array): Turn {
    const argv = launch.kind === 'handler' ? workerCommand(launch.entry ?? '', this.#agent) : launch.argv;
    const contents = {
      launch: Buffer.from(launchScript(launch, argv)),
      input,
      kind: Buffer.from(`${launch.kind}${launch.freshTmp ? ' tmp' : ''}\n`),
      [`exit${UNPUBLISHED}`]: Buffer.from(EXIT_ROOM),
    };
    const files = this.#repaired(() => TurnFiles.create(this.#run.turns, launch.turnId, contents));
    return this.#adopt(launch.turnId, launch.kind, launch.freshTmp, files);
  }

  /** Does `make` in a run directory that is whole; a process of the agent may be damaging it at this very moment. */
  #repaired<T>(make: () => T): T {
    for (let tries = 1; ; tries += 1) {
      try {
        this.#run.repair();
        return make();
      } catch (error) {
        if (!isPathError(error)) throw error;
        if (tries < REPAIR_TRIES) continue;
        throw new HoldfastError('sandbox_lost', 'The turn cannot be handed to the sandbox', {
          why: 'something in the sandbox keeps removing or replacing its run directory',
          details: { runDirectory: 'damaged' },
          cause: error,
        });
      }
    }
  }

  /** A turn that we know, or that an earlier sidecar left. */
  #find(turnId: string): Turn | null {
    const known = this.#known.get(turnId);
    if (known !== undefined) return known;
    const files = TurnFiles.find(this.#run.turns, turnId);
    if (files === null) return null;
    const [kind, tmp] = (files.text('kind') ?? '').trim().split(' ');
    return this.#adopt(turnId, kind === 'handler' ? 'handler' : 'command', tmp === 'tmp', files);
  }

  #adopt(id: string, kind: TurnKind, freshTmp: boolean, files: TurnFiles): Turn {
    const changes = new DirectoryWatcher(files.directory, (mode) => {
      this.#mode = mode;
    });
    const turn = new Turn({ id, kind, freshTmp, files, changes, run: this.#run });
    this.#known.set(id, turn);
    return turn;
  }

  #send(turn: Turn): void {
    const wait = Math.min(SEND_AGAIN_MS.first * 2 ** turn.sendCount, SEND_AGAIN_MS.most);
    turn.sendCount += 1;
    turn.resendAt = performance.now() + wait;
    if (turn.kind === 'command') {
      sendLine(this.#run.root, REQUESTS, `start ${turn.id}`);
      return;
    }
    if (turn.sendCount <= WORKER_CHANCES) {
      const line = turn.freshTmp ? `${turn.id} tmp` : turn.id;
      if (sendLine(this.#run.worker, REQUESTS, line) !== 'nobody') return;
    }
    sendLine(this.#run.root, REQUESTS, `worker start w-${randomBytes(8).toString('hex')} ${turn.id}`);
  }

  /** What is under way is looked at now and then: requests get lost with the process that was to read them. */
  #lookAfter(turn: Turn): void {
    this.#underWay.add(turn);
    this.#tick ??= setInterval(() => this.#lookAround(), TICK_MS);
  }

  #lookAround(): void {
    this.#ticks += 1;
    for (const turn of this.#underWay) {
      const { state } = turn.progress();
      if (state === 'ended' || state === 'absent') this.#underWay.delete(turn);
      else if (state === 'accepted' && performance.now() >= turn.resendAt) this.#send(turn);
      else if (state === 'running' && this.#ticks % CHECK_TICKS === 0) {
        sendLine(this.#run.root, REQUESTS, `check ${turn.id}`);
      }
    }
    if (this.#underWay.size > 0) return;
    clearInterval(this.#tick);
    this.#tick = undefined;
  }

  /** Sends one line to the runner. */
  async #request(line: string, signal: AbortSignal): Promise<void> {
    const deadline = performance.now() + ROOM_MS;
    for (;;) {
      switch (sendLine(this.#run.root, REQUESTS, line)) {
        case 'sent':
          return;
        case 'nobody':
          throw new HoldfastError('sandbox_lost', "The agent's container does not listen", {
            why: 'its main process has not opened its requests',
          });
        case 'full':
          if (performance.now() < deadline) break;
          throw new HoldfastError('timeout', "The agent's container does not listen", {
            why: 'its main process has stopped reading its requests',
          });
      }
      await delay(50, signal);
    }
  }
}
