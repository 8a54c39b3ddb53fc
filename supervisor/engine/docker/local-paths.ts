import { randomBytes } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { chmod, chown, mkdir, mkdtemp, rename, rm, stat, writeFile } from 'node:fs/promises';
import { hostname, release } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { HelperContainers } from './helper-containers.ts';
import { connectToSidecarSocket } from './dial.ts';
import type { InfoReply } from './replies.ts';
import { bindMount } from './mount-strategy.ts';

/** Whether the engine sees this machine's files as this machine does, by engine and user. */
const KnownSchema = z.record(z.string(), z.boolean());
const LISTEN_MS = 10_000;
const HEAR_MS = 2000;

/**
 * What the engine's own description lets one expect: same name and kernel, and its data is here. Only a guess until it was
 * tried: a daemon may have a view of the files of its own (snap, a container), and Docker Desktop's is a virtual machine.
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

/** Tries it out and remembers the answer, because it never changes for an engine and a user. */
export class LocalPathsProbe {
  readonly #folder: string;
  readonly #chores: HelperContainers;

  constructor(home: string, chores: HelperContainers) {
    this.#folder = join(home, 'engine');
    this.#chores = chores;
  }

  /** What was found out earlier, else a guess. */
  guess(info: InfoReply): boolean {
    return this.#remembered()[key(info)] ?? looksLocal(info);
  }

  async detect(info: InfoReply): Promise<boolean> {
    const known = this.#remembered()[key(info)];
    if (known !== undefined) return known;
    const answer = await this.#tryOut();
    const all = { ...this.#remembered(), [key(info)]: answer };
    const path = join(this.#folder, `local-paths.${randomBytes(4).toString('hex')}`);
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    await writeFile(path, `${JSON.stringify(all, null, 2)}\n`, { mode: 0o600 });
    await rename(path, join(this.#folder, 'local-paths.json'));
    return answer;
  }

  /**
   * A container as our uid reads a word through a mount, and says it on a socket that it makes there. When we can hear it,
   * and the socket is ours, both mounts and direct dialling work.
   */
  async #tryOut(): Promise<boolean> {
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
      // Not by the mode of the creation: a supervisor's umask takes from it what others may do.
      await chmod(join(folder, 'word'), 0o444);
      await chown(folder, owner.uid, owner.gid);
      let heard = false;
      await this.#chores.run({
        what: 'Cannot find out whether the engine sees the files of this machine',
        command: ['node', '-e', SAY_PROGRAM],
        mounts: [bindMount(folder, '/probe')],
        user: owner,
        stdout: async (said) => {
          // It says that it listens; where it cannot, it ends without a word.
          for await (const _ of said) {
            const socket = join(folder, 'socket');
            heard = (await hear(socket)) === word && (await stat(socket)).uid === owner.uid;
            await writeFile(join(folder, 'done'), '');
          }
        },
      });
      return heard;
    } catch (error) {
      // An engine elsewhere does not have the folder at all: that is an answer. Others are failures.
      if (
        error instanceof Error &&
        'reason' in error &&
        /source path does not exist|mounts denied/i.test(String(error.reason))
      )
        return false;
      throw error;
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  #remembered(): Record<string, boolean> {
    try {
      return KnownSchema.parse(JSON.parse(readFileSync(join(this.#folder, 'local-paths.json'), 'utf8')));
    } catch {
      // Not there or not readable: it is only a memory, and is made again.
      return {};
    }
  }
}

const SAY_PROGRAM = `
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
  const until = performance.now() + HEAR_MS;
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
    // Not there, or not for us to see: no proof of being here.
    return false;
  }
}
