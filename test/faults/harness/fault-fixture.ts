import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach } from 'vitest';
import { z } from 'zod';
import type { Turn } from '../../../protocol/entities.ts';
import { writeProject } from '../../setup/profiles.ts';
import { BUNDLE, FaultHome, type FaultHomeOptions } from './fault-home.ts';
import { deploy } from '../../setup/deploy.ts';

const GONE_MS = 30_000;
const TURN_MS = 60_000;

/** How a program of the command line ended. */
export interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** What a fault suite works with; all of it is gone after each test, or after the suite when made so. */
export interface FaultFixture {
  createHome(options?: FaultHomeOptions): Promise<FaultHome>;
  temporaryFolder(): Promise<string>;
  /** Deploys a project made of these files. */
  deploy(home: FaultHome, files: Readonly<Record<string, string>>): Promise<void>;
  /** Runs `holdfast ARGS`; a supervisor that it leaves is told to leave at the end. */
  runHoldfast(home: FaultHome, args: readonly string[], options?: CommandOptions): Promise<CommandResult>;
  onCleanup(end: () => Promise<unknown>): void;
}

export interface CommandOptions {
  readonly bundle?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: Uint8Array;
}

/** `hook`: when things are cleared away; default after each test. */
export function useFaultFixture(hook: (end: () => Promise<void>) => unknown = afterEach): FaultFixture {
  const endings: (() => Promise<unknown>)[] = [];
  const watched = new Set<string>();
  hook(async () => {
    const failures: unknown[] = [];
    watched.clear();
    for (const end of endings.splice(0).reverse())
      await end().catch((error: unknown) => failures.push(error));
    if (failures.length > 0) throw new AggregateError(failures, 'not everything could be cleared away');
  });
  const folder = async (): Promise<string> => {
    const path = await mkdtemp(join(tmpdir(), 'holdfast-fault-'));
    endings.push(() => rm(path, { recursive: true, force: true }));
    return path;
  };
  return {
    temporaryFolder: folder,
    onCleanup: (end) => void endings.push(end),
    async createHome(options) {
      const home = await FaultHome.create(options);
      endings.push(() => home.dispose());
      return home;
    },
    async deploy(home, files) {
      const directory = await writeProject(await folder(), files);
      await deploy(home, directory);
    },
    runHoldfast(home, args, options = {}) {
      if (!watched.has(home.path)) {
        watched.add(home.path);
        endings.push(() => stopSupervisor(home));
      }
      return command(home, args, options);
    },
  };
}

function command(home: FaultHome, args: readonly string[], options: CommandOptions): Promise<CommandResult> {
  const env = { ...process.env, ...home.env, ...options.env, HOLDFAST_HOME: home.path };
  return new Promise((resolve, reject) => {
    const child = execFile(
      process.execPath,
      [options.bundle ?? BUNDLE, ...args],
      { env, maxBuffer: 256 * 2 ** 20 },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : z.object({ code: z.number() }).safeParse(error).data?.code;
        if (code === undefined)
          reject(new Error(`holdfast ${args.join(' ')} was ended: ${stderr}`, { cause: error }));
        else resolve({ code, stdout, stderr });
      },
    );
    // A program that does not read its input closes it early; its exit code tells how it went.
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(options.input);
  });
}

/** Ends the supervisor that serves this home, whoever started it. */
export async function stopSupervisor(home: FaultHome): Promise<void> {
  const answered = await home.call('supervisor/status', {}).catch(() => null);
  if (answered === null) return;
  await home.call('supervisor/stop', {});
  await waitForProcessExit(answered.pid);
}

export async function waitForProcessExit(pid: number): Promise<void> {
  const until = Date.now() + GONE_MS;
  while (existsSync(`/proc/${pid}`)) {
    if (Date.now() > until) throw new Error(`the process ${pid} does not leave`);
    await sleep(20);
  }
}

/** The turn when it has ended, which must be soon. */
export async function waitForTurn(home: FaultHome, turn: string, ms = TURN_MS): Promise<Turn> {
  const { turn: after } = await home.call('turn/wait', { turn, timeoutMs: ms });
  if (after.endedAt === null)
    throw new Error(`${turn} is ${after.status} after ${ms} ms\n${await home.readLog()}`);
  return after;
}

/** Asks until the check holds. */
export async function waitUntil(
  what: string,
  check: () => boolean | Promise<boolean>,
  ms = 40_000,
): Promise<void> {
  const until = Date.now() + ms;
  while (!(await check())) {
    if (Date.now() > until) throw new Error(`not within ${ms} ms: ${what}`);
    await sleep(25);
  }
}
