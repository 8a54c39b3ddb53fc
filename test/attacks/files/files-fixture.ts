import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { FilesConnection } from '../../../supervisor/workspace/files-connection.ts';
import { connectFiles } from '../../docker/connect-files.ts';
import { ContainerPairs, type ContainerPair } from '../../docker/container-pair.ts';
import { waitUntil } from '../../fixtures/sidecar/turns.ts';

export const CANARY = 'canary: a byte from outside';
/** All names in the sidecar's control directory. */
export const CONTROL_ENTRIES = ['entries', 'processes', 'secret', 'sidecar.sock', 'snapshots', 'terminals'];

/** How long a small request may wait while a large one is served, ms. On a busy machine a process waits this long for the processor. */
export const MAX_STALL_MS = 3000;

/** A real sidecar and a real agent container, with a canary in the sidecar's control directory, which the agent must never reach. */
export class FilesFixture {
  readonly pair: ContainerPair;
  readonly files: FilesConnection;
  readonly #pairs: ContainerPairs;
  readonly #other: FilesConnection;

  private constructor(
    pairs: ContainerPairs,
    pair: ContainerPair,
    files: FilesConnection,
    other: FilesConnection,
  ) {
    this.#pairs = pairs;
    this.pair = pair;
    this.files = files;
    this.#other = other;
  }

  static async create(sidecarEnv: readonly string[] = []): Promise<FilesFixture> {
    const pairs = await ContainerPairs.create();
    try {
      const attacker = readFileSync(join(import.meta.dirname, 'attacker.py'), 'utf8');
      const pair = await pairs.createPair({ code: { 'attacker.py': attacker }, sidecarEnv });
      writeFileSync(pair.path('control/secret'), CANARY, { mode: 0o666 });
      // The sidecar answers before it has created all of its folders.
      await waitUntil('its folders are there', () => existsSync(pair.path('control/snapshots')));
      return new FilesFixture(pairs, pair, await connectFiles(pair), await connectFiles(pair));
    } catch (error) {
      await pairs.dispose();
      throw error;
    }
  }

  async dispose(): Promise<void> {
    this.files.close();
    this.#other.close();
    await this.#pairs.dispose();
  }

  /** Runs one attack of the agent to its end and returns the result. */
  async runAttack(...deed: string[]): Promise<string> {
    const { exitCode, output } = await this.pair.runInAgent(['python3', '/agent/attacker.py', ...deed]);
    if (exitCode !== 0) throw new Error(`the attacker failed: ${output}`);
    return output;
  }

  /** Runs an attack of attacker.py that lasts until `work` is done. */
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

  /** Measures how long another client had to wait at most for a small answer while `work` ran, ms. */
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

  /** Lists the sidecar's control directory; throws if the canary was changed. */
  listControlDirectory(): string[] {
    const secret = readFileSync(this.pair.path('control/secret'), 'utf8');
    if (secret !== CANARY) throw new Error(`the canary was changed: ${secret}`);
    return readdirSync(this.pair.path('control')).sort();
  }

  /** Temporary files of the sidecar that are left in the workspace, at any depth. */
  listTemporaryFiles(): string[] {
    // find follows no links, unlike a recursive readdir.
    const found = execFileSync('find', [this.pair.path('workspace'), '-name', '.holdfast-*'], {
      encoding: 'utf8',
    });
    return found.split('\n').filter((line) => line !== '');
  }
}

/** The result of the work, or the code of its typed error. Other errors are thrown. */
export async function resultOrErrorCode<T>(work: Promise<T>): Promise<T | string> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    if (error.code === 'internal' || error.code === 'connection_closed') throw error;
    return error.code;
  }
}
