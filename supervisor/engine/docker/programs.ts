import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { HelperContainers } from './helper-containers.ts';

interface ProgramFile {
  readonly name: string;
  readonly contents: Buffer;
}

const STAGING = '.staging-';

/**
 * Our program files in the containers: the built files, and a static busybox from the trusted image, so that an
 * agent's image needs no shell. Published once per content under `<folder>/<hash>`, completely or not at all.
 */
export class SandboxPrograms {
  /** Hash of all files: 16 hex digits. */
  readonly hash: string;
  readonly #files: readonly ProgramFile[];
  readonly #folder: string;
  readonly #helpers: HelperContainers;
  #published: Promise<string> | null = null;

  constructor(builtFiles: string, image: string, folder: string, helpers: HelperContainers) {
    this.#files = readBuilt(builtFiles);
    this.#folder = folder;
    this.#helpers = helpers;
    const hash = createHash('sha256').update(`${image}\0`);
    for (const { name, contents } of this.#files)
      hash.update(`${name}\0${contents.length}\0`).update(contents);
    this.hash = hash.digest('hex').slice(0, 16);
  }

  has(name: string): boolean {
    return this.#files.some((file) => file.name === name);
  }

  /** Publishes the files if necessary and returns their folder; everybody may read it. */
  publish(): Promise<string> {
    this.#published ??= this.#publish().catch((error: unknown) => {
      this.#published = null;
      throw error;
    });
    return this.#published;
  }

  async #publish(): Promise<string> {
    const target = join(this.#folder, this.hash);
    if (await exists(target)) return target;
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    // One supervisor per home: staging folders are leftovers of one that was killed.
    for (const name of await readdir(this.#folder)) {
      if (name.startsWith(STAGING)) await rm(join(this.#folder, name), { recursive: true, force: true });
    }
    const staging = await mkdtemp(join(this.#folder, STAGING));
    try {
      for (const { name, contents } of this.#files) await writeDurably(join(staging, name), contents);
      await writeDurably(join(staging, 'busybox'), await this.#busybox());
      await chmod(staging, 0o755);
      await syncFolder(staging);
      await rename(staging, target);
      await syncFolder(this.#folder);
      return target;
    } catch (error) {
      await rm(staging, { recursive: true, force: true });
      throw error;
    }
  }

  async #busybox(): Promise<Buffer> {
    const what = 'Cannot copy busybox from the sidecar image';
    const parts: Buffer[] = [];
    await this.#helpers.run({
      what,
      command: [
        'node',
        '-e',
        `const fs = require('node:fs');
         const path = ['/bin/busybox', '/usr/bin/busybox'].find((one) => fs.existsSync(one));
         fs.createReadStream(path).pipe(process.stdout);`,
      ],
      mounts: [],
      user: { uid: 65534, gid: 65534 },
      stdout: async (stream: Readable) => {
        for await (const chunk of stream) parts.push(chunk as Buffer);
      },
    });
    const busybox = Buffer.concat(parts);
    if (busybox.subarray(0, 4).toString('latin1') === '\x7fELF') return busybox;
    throw new HoldfastError('engine_error', what, {
      why: 'the image has no busybox',
      next: "use Holdfast's own sidecar image",
    });
  }
}

function readBuilt(folder: string): ProgramFile[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isFile() && !entry.name.endsWith('.map'))
      .map(({ name }) => ({ name, contents: readFileSync(join(folder, name)) }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  } catch (error) {
    throw new HoldfastError('internal', 'The files that run in sandboxes cannot be read', {
      why: `${folder}: ${error instanceof Error ? error.message : String(error)}`,
      next: 'rebuild Holdfast with `npm run build`',
      cause: error,
    });
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return false;
    throw error;
  }
}

async function writeDurably(path: string, contents: Buffer): Promise<void> {
  const file = await open(path, 'wx', 0o755);
  try {
    await file.writeFile(contents);
    // The umask must not decide what a session's uid may read.
    await file.chmod(0o755);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
