import { randomBytes } from 'node:crypto';
import {
  constants,
  mkdirSync,
  openSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  renameSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { RESERVED_NAMES, WORKSPACE } from '../../protocol/paths.ts';
import { Directory, errnoOf } from './directory.ts';
import type { Native } from './native.ts';
import { OpenFile, openRegular } from './open-file.ts';
import { O_PATH, type Resolver } from './resolver.ts';
import { removeName, type TemporaryName } from './staged-file.ts';
import { versionOf } from './version.ts';

const SLASH = '/'.charCodeAt(0);
/** A note on its way: the one that it replaces, if any, holds until it has its name. */
const UNFINISHED = '.new';

/** What the file that is to be replaced must be: exactly this content, exactly this file unchanged, or anything. */
export const ExpectedSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('content'), version: z.string() }),
  z.object({ kind: z.literal('facts'), facts: z.string() }),
  z.object({ kind: z.literal('anything') }),
]);
export type Expected = z.infer<typeof ExpectedSchema>;

/** Names are in hexadecimal: they are bytes. */
const IntentSchema = z.object({
  /** Of the folder, below the workspace. */
  folder: z.string(),
  temporary: z.string(),
  target: z.string(),
  /** Device and inode of the new content. */
  staged: z.string(),
  expected: ExpectedSchema,
});

/**
 * Notes, in a folder that the agent cannot reach, of the moments in which a write has a temporary name. After a crash the
 * next sidecar finishes or undoes those writes: the workspace has the old or the new content, and no temporary file.
 */
export class WriteIntents {
  readonly #folder: string;
  readonly #run = randomBytes(4).toString('hex');
  #count = 0;

  /** `folder` is made if it is not there. */
  constructor(folder: string) {
    this.#folder = folder;
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  }

  newName(): Buffer {
    this.#count += 1;
    return Buffer.from(`${RESERVED_NAMES[0]}${this.#run}-${this.#count}`);
  }

  /** In one step, also where it replaces an earlier note: from then on there may be a file of the temporary name. */
  note(temporary: TemporaryName, target: Buffer, staged: string, expected: Expected): void {
    const folder = readlinkSync(`/proc/self/fd/${temporary.directory.fd}`, { encoding: 'buffer' });
    const intent: z.input<typeof IntentSchema> = {
      folder: folder.toString('hex'),
      temporary: temporary.name.toString('hex'),
      target: target.toString('hex'),
      staged,
      expected,
    };
    const path = this.#path(temporary);
    writeFileSync(path + UNFINISHED, JSON.stringify(intent), { mode: 0o600 });
    renameSync(path + UNFINISHED, path);
  }

  /** The temporary name is gone. */
  forget(temporary: TemporaryName): void {
    try {
      unlinkSync(this.#path(temporary));
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error;
    }
  }

  /** Settles what an earlier sidecar left. `root` is the workspace's path as this process sees it. */
  async recover(resolver: Resolver, native: Native | null, root: string): Promise<number> {
    let settled = 0;
    for (const name of readdirSync(this.#folder)) {
      const path = join(this.#folder, name);
      if (name.endsWith(UNFINISHED)) {
        unlinkSync(path);
        continue;
      }
      const parsed = IntentSchema.safeParse(readIntent(path));
      if (parsed.success) {
        try {
          await settle(parsed.data, resolver, native, root);
        } catch (error) {
          if (errnoOf(error) === undefined) throw error;
          console.error('files: a write that was cut off could not be settled:', error);
        }
      }
      unlinkSync(path);
      settled += 1;
    }
    return settled;
  }

  #path(temporary: TemporaryName): string {
    return join(this.#folder, temporary.name.toString('latin1'));
  }
}

/** Whether an earlier sidecar left notes in `folder`, which need not be there. */
export function hasIntents(folder: string): boolean {
  try {
    return readdirSync(folder).length > 0;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}

/** Undefined for what is no note. */
function readIntent(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

async function settle(
  { folder, temporary, target, staged, expected }: z.output<typeof IntentSchema>,
  resolver: Resolver,
  native: Native | null,
  root: string,
): Promise<void> {
  const path = Buffer.from(folder, 'hex');
  const top = Buffer.from(root);
  if (!path.subarray(0, top.length).equals(top)) return;
  const names = splitPath(path.subarray(top.length));
  let fd: number;
  try {
    fd = resolver.open(names, false);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') return; // its folder went, and with it the file
    throw error;
  }
  using directory = Directory.over(fd);
  const left = { directory, name: Buffer.from(temporary, 'hex') };
  let out: OpenFile;
  try {
    out = new OpenFile(openSync(directory.pathOf(left.name), O_PATH | constants.O_NOFOLLOW));
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return;
    throw error;
  }
  using file = out;
  const { dev, ino } = file.stat();
  // Ours before the exchange, or what it replaced and was meant to replace. Anything else is somebody's change: it goes back.
  const isOurs = `${dev}:${ino}` === staged;
  if (!isOurs && native !== null && !(await isExpected(file, expected))) {
    native.exchange(directory.fd, left.name, directory.fd, Buffer.from(target, 'hex'));
  }
  removeName(left);
}

/** True when the file named by an O_PATH descriptor is what a write was to replace. */
export async function isExpected(named: OpenFile, expected: Expected): Promise<boolean> {
  const stat = named.stat();
  if (!stat.isFile()) return false;
  switch (expected.kind) {
    case 'anything':
      return true;
    case 'facts':
      return factsOf(named) === expected.facts;
    case 'content': {
      using file = openRegular(named, WORKSPACE);
      for (;;) {
        const before = file.stat();
        const { version } = await versionOf(file);
        if (version !== expected.version) return false;
        if (file.stat().ctimeNs === before.ctimeNs) return true;
      }
    }
  }
}

/** What a change of a file changes and a rename does not. */
export function factsOf(file: OpenFile): string {
  const { dev, ino, size, mtimeNs } = file.stat();
  return [dev, ino, size, mtimeNs].join(' ');
}

function splitPath(path: Buffer): Buffer[] {
  const names: Buffer[] = [];
  for (let from = 0; from < path.length;) {
    const slash = path.indexOf(SLASH, from);
    const end = slash === -1 ? path.length : slash;
    if (end > from) names.push(path.subarray(from, end));
    from = end + 1;
  }
  return names;
}
