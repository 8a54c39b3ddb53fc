import { randomBytes } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { chmod, chown, mkdir, mkdtemp, rename, rm, stat, writeFile } from 'node:fs/promises';
import { hostname, release } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { isRefusal } from './errors.ts';
import type { HelperContainers } from './helper-containers.ts';
import { connectToSidecarSocket } from './dial.ts';
import type { InfoReply } from './replies.ts';
import { bindMount } from './mount-strategy.ts';

/** Whether the engine sees this machine's files; keyed by engine and user. */
const DetectedSchema = z.record(z.string(), z.boolean());
const LISTEN_MS = 10_000;
const RECEIVE_MS = 2000;

/**
 * Guesses from the engine's description: same host name and kernel, and its data directory exists here. Only a test
 * proves it: a daemon may have its own view of the file system (snap, a container), and Docker Desktop's engine runs
 * in a virtual machine.
 */
export function looksLocal(info: InfoReply): boolean {
  const shifted = (info.SecurityOptions ?? []).some((option) => /name=(rootless|userns)/.test(option));
  return (
    process.platform === 'linux' &&
    !shifted &&
    info.Name === hostname() &&
    info.KernelVersion === release() &&
    isFolder(info.DockerRootDir)
  );
}

/** Tests it and stores the answer, which never changes for an engine and a user. */
export class LocalPathsProbe {
  readonly #folder: string;
  readonly #helpers: Pick<HelperContainers, 'run'>;

  constructor(home: string, helpers: Pick<HelperContainers, 'run'>) {
    this.#folder = join(home, 'engine');
    this.#helpers = helpers;
  }

  /** The stored answer, else a guess. */
  guess(info: InfoReply): boolean {
    return this.#remembered()[key(info)] ?? looksLocal(info);
  }

  async detect(info: InfoReply): Promise<boolean> {
    const known = this.#remembered()[key(info)];
    if (known !== undefined) return known;
    const answer = await this.#probe();
    const all = { ...this.#remembered(), [key(info)]: answer };
    const path = join(this.#folder, `local-paths.${randomBytes(4).toString('hex')}`);
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    await writeFile(path, `${JSON.stringify(all, null, 2)}\n`, { mode: 0o600 });
    await rename(path, join(this.#folder, 'local-paths.json'));
    return answer;
  }

  /**
   * A container with our uid reads a token through a bind mount and sends it over a socket that it creates there. If
   * the token arrives and the socket has our owner, both bind mounts and direct dialing work.
   */
  async #tryOut(): Promise<boolean | null> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    const folder = await mkdtemp(join(this.#folder, 'probe-'));
    const word = randomBytes(16).toString('hex');
    const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
    if (owner.uid === 0) {
      owner.uid = 65534;
      owner.gid = 65534;
    }
    try {
      await writeFile(join(folder, 'word'), word);
      // The umask would apply to the mode at creation.
      await chmod(join(folder, 'word'), 0o444);
      await chown(folder, owner.uid, owner.gid);
      let heard = false;
      await this.#helpers.run({
        what: 'Cannot detect whether the engine sees the files of this machine',
        command: ['node', '-e', PROBE_PROGRAM],
        mounts: [bindMount(folder, '/probe')],
        user: owner,
        stdout: async (said) => {
          // The program prints a line once it listens; if it cannot listen, it exits silently.
          for await (const _ of said) {
            const socket = join(folder, 'socket');
            heard = (await hear(socket)) === word && (await stat(socket)).uid === owner.uid;
            await writeFile(join(folder, 'done'), '');
          }
        },
      });
      return heard;
    } catch (error) {
      // A remote engine refuses to mount a folder that it does not have; other errors are failures. The wording of a
      // refusal differs between engines, so a container without the mount shows what was refused.
      if (isRefusal(error) && (await this.#runsWithoutMount(owner))) return null;
      throw error;
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  /** Repeats a refused probe once, so that a passing refusal of a busy engine is not stored as its answer. */
  async #probe(): Promise<boolean> {
    return (await this.#tryOut()) ?? (await this.#tryOut()) ?? false;
  }

  async #runsWithoutMount(user: { uid: number; gid: number }): Promise<boolean> {
    try {
      await this.#helpers.run({
        what: 'Cannot detect whether the engine can run a container',
        command: ['node', '-e', ''],
        mounts: [],
        user,
      });
      return true;
    } catch {
      // The caller gets the first error.
      return false;
    }
  }

  #remembered(): Record<string, boolean> {
    try {
      return DetectedSchema.parse(JSON.parse(readFileSync(join(this.#folder, 'local-paths.json'), 'utf8')));
    } catch {
      // Missing or unreadable: only a cache, written again.
      return {};
    }
  }
}

const PROBE_PROGRAM = `
const fs = require('node:fs');
let word = '';
try { word = fs.readFileSync('/probe/word', 'utf8'); } catch { process.exit(0); }
try {
  const server = require('node:net').createServer((socket) => socket.end(word));
  server.on('error', () => process.exit(0));
  server.listen('/probe/socket', () => console.log('listening'));
} catch { process.exit(0); }
const started = Date.now();
setInterval(() => { if (fs.existsSync('/probe/done') || Date.now() - started > ${LISTEN_MS}) process.exit(0); }, 20);
`;

async function hear(path: string): Promise<string | null> {
  const until = performance.now() + RECEIVE_MS;
  while (performance.now() < until) {
    const socket = await connectToSidecarSocket(path);
    if (socket !== null) {
      const parts: Buffer[] = [];
      for await (const chunk of socket) parts.push(chunk as Buffer);
      return Buffer.concat(parts).toString('utf8');
    }
    await sleep(20);
  }
  return null;
}

function key(info: InfoReply): string {
  return `${info.ID === '' ? info.Name : info.ID} uid=${process.getuid?.() ?? -1}`;
}

function isFolder(path: string): boolean {
  try {
    return path !== '' && statSync(path).isDirectory();
  } catch {
    // Missing or not accessible: no proof that the engine is local.
    return false;
  }
}
