import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../../protocol/errors.ts';
import { connectToSidecarSocket } from '../../../supervisor/engine/docker/dial.ts';
import { FilesConnection } from '../../../supervisor/workspace/files-connection.ts';
import { ContainerPairs, type ContainerPair } from '../../docker/container-pair.ts';
import { waitUntil } from '../../fixtures/sidecar/turns.ts';

export const CANARY = 'canary: a byte from outside';
/** What the sidecar's own folder holds, and nothing else. */
export const CONTROL_ENTRIES = ['entries', 'secret', 'sidecar.sock', 'snapshots', 'terminals'];

/**
 * As long may a small answer take while something large is at work, ms: far less than the whole of it, and more than a busy machine keeps
 * a process from running.
 */
export const MAX_STALL_MS = 3000;

/** A real sidecar and a real agent container, with a canary where only the sidecar has its eyes. */
export class FilesFixture {
  readonly pair: ContainerPair;
  readonly files: FilesConnection;
  readonly #bench: ContainerPairs;
  readonly #other: FilesConnection;

  private constructor(
    bench: ContainerPairs,
    pair: ContainerPair,
    files: FilesConnection,
    other: FilesConnection,
  ) {
    this.#bench = bench;
    this.pair = pair;
    this.files = files;
    this.#other = other;
  }

  static async create(sidecarEnv: readonly string[] = []): Promise<FilesFixture> {
    const bench = await ContainerPairs.create();
    try {
      const attacker = readFileSync(join(import.meta.dirname, 'attacker.py'), 'utf8');
      const pair = await bench.createPair({ code: { 'attacker.py': attacker }, sidecarEnv });
      writeFileSync(pair.path('control/secret'), CANARY, { mode: 0o666 });
      // It answers before it has made all of its folders.
      await waitUntil('its folders are there', () => existsSync(pair.path('control/snapshots')));
      return new FilesFixture(bench, pair, await connectFiles(pair), await connectFiles(pair));
    } catch (error) {
      await bench.dispose();
      throw error;
    }
  }

  async dispose(): Promise<void> {
    this.files.close();
    this.#other.close();
    await this.#bench.dispose();
  }

  /** Runs one attack of the agent to its end and returns the result. */
  async runAttack(...deed: string[]): Promise<string> {
    const { exitCode, output } = await this.pair.runInAgent(['python3', '/agent/attacker.py', ...deed]);
    if (exitCode !== 0) throw new Error(`the attacker failed: ${output}`);
    return output;
  }

  /** Lets the agent do a deed of those that last while `work` goes on. */
  async attackWhile<T>(deed: readonly string[], work: () => Promise<T>): Promise<T> {
    const attack = this.runAttack(...deed);
    // It is awaited at the end; until then a rejection is not unhandled.
    let over = false;
    void attack.catch(() => undefined).finally(() => (over = true));
    const begun = this.pair.path('run/begun');
    try {
      await waitUntil('the agent has begun', () => over || existsSync(begun), 30_000);
      rmSync(begun, { force: true });
      return await work();
    } finally {
      writeFileSync(this.pair.path('workspace/stop'), '');
      await attack;
      rmSync(this.pair.path('workspace/stop'));
    }
  }

  /** The longest that another caller had to wait for a small answer while `work` went on, ms. */
  async measureStall(work: () => Promise<unknown>): Promise<number> {
    let longest = 0;
    const over = new AbortController();
    const meter = (async () => {
      while (!over.signal.aborted) {
        const began = performance.now();
        await this.#other.call('files/stat', { path: '/workspace' });
        longest = Math.max(longest, performance.now() - began);
        await sleep(5);
      }
    })();
    try {
      await work();
    } finally {
      over.abort();
      await meter;
    }
    return longest;
  }

  /** What the sidecar alone can reach must be as it was. */
  listControlDirectory(): string[] {
    const secret = readFileSync(this.pair.path('control/secret'), 'utf8');
    if (secret !== CANARY) throw new Error(`the canary was changed: ${secret}`);
    return readdirSync(this.pair.path('control')).sort();
  }

  /** Names of ours that are left in the workspace, however deep. */
  listTemporaryFiles(): string[] {
    // It follows no links, unlike a recursive readdir.
    const found = execFileSync('find', [this.pair.path('workspace'), '-name', '.holdfast-*'], {
      encoding: 'utf8',
    });
    return found.split('\n').filter((line) => line !== '');
  }
}

export async function connectFiles(pair: ContainerPair): Promise<FilesConnection> {
  const dial = async () => {
    const socket = await connectToSidecarSocket(pair.path('control/sidecar.sock'));
    if (socket === null) throw new Error('the sidecar does not listen');
    return socket;
  };
  return await FilesConnection.open(dial, pair.session);
}

/** The code of the error that the work ends with, or what it gives. Anything that is not typed is thrown on. */
export async function resultOrErrorCode<T>(work: Promise<T>): Promise<T | string> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    if (error.code === 'internal' || error.code === 'connection_closed') throw error;
    return error.code;
  }
}
