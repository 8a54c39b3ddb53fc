import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import type { Directory } from '../files/directory.ts';
import { errnoOf } from '../files/directory.ts';
import { O_PATH } from '../files/resolver.ts';

const PERMISSIONS = 0o7777;

/** Names are bytes, stored in hexadecimal. `lent` is the temporary mode; the key is stored. */
const ChmodRecordSchema = z.object({
  path: z.array(z.string()),
  inode: z.string(),
  mode: z.number().int(),
  lent: z.number().int(),
});

export type RestoreMode = (fd: number) => void;

/**
 * Temporary chmods where a mode denies access to its owner. Each has a record in a directory that the agent cannot
 * reach. If a sidecar dies, the next one restores the mode.
 */
export class TemporaryChmods {
  readonly #directory: string;
  #count = 0;

  constructor(directory: string) {
    this.#directory = directory;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
  }

  /**
   * Adds permissions to the file of a descriptor, which may be O_PATH. `path`: its path in the workspace. Returns a
   * function that restores the mode through any descriptor of the file.
   */
  grant(fd: number, path: readonly Buffer[], bits: number): RestoreMode {
    const { ino, mode } = fstatSync(fd, { bigint: true });
    const before = Number(mode) & PERMISSIONS;
    const record: z.input<typeof ChmodRecordSchema> = {
      path: path.map((name) => name.toString('hex')),
      inode: String(ino),
      mode: before,
      lent: before | bits,
    };
    this.#count += 1;
    const recordPath = join(this.#directory, `${process.pid}-${this.#count}`);
    writeFileSync(recordPath, JSON.stringify(record), { mode: 0o600 });
    chmodSync(`/proc/self/fd/${fd}`, record.lent);
    return (open) => {
      // If another process changed the mode meanwhile, its mode stays.
      const now = fstatSync(open).mode & PERMISSIONS;
      if (now === record.lent) chmodSync(`/proc/self/fd/${open}`, before);
      unlinkSync(recordPath);
    };
  }

  /** Restores the modes that an earlier sidecar did not. */
  recover(root: Directory): void {
    for (const name of readdirSync(this.#directory)) {
      const recordPath = join(this.#directory, name);
      const record = ChmodRecordSchema.safeParse(readRecord(recordPath));
      if (record.success) {
        try {
          restoreMode(root, record.data);
        } catch (error) {
          // It is gone, or another file has its name.
          if (errnoOf(error) === undefined) throw error;
        }
      }
      unlinkSync(recordPath);
    }
  }
}

/** Undefined for a truncated record: the mode was not changed yet. */
function readRecord(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function restoreMode(root: Directory, { path, inode, mode, lent }: z.output<typeof ChmodRecordSchema>): void {
  let here = openSync(root.selfPath, O_PATH | constants.O_DIRECTORY);
  try {
    for (const name of path) {
      const next = openSync(
        Buffer.concat([Buffer.from(`/proc/self/fd/${here}/`), Buffer.from(name, 'hex')]),
        O_PATH | constants.O_NOFOLLOW,
      );
      closeSync(here);
      here = next;
    }
    const now = fstatSync(here, { bigint: true });
    if (String(now.ino) === inode && (Number(now.mode) & PERMISSIONS) === lent) {
      chmodSync(`/proc/self/fd/${here}`, mode);
    }
  } finally {
    closeSync(here);
  }
}
