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

/** Names are in hexadecimal: they are bytes. */
const LoanSchema = z.object({
  path: z.array(z.string()),
  inode: z.string(),
  mode: z.number().int(),
  lent: z.number().int(),
});

export type RestoreMode = (fd: number) => void;

/**
 * Permissions that we lend ourselves where a mode denies its owner, with a note in a folder that the agent cannot reach: what
 * a sidecar that died has not given back, the next one does.
 */
export class TemporaryChmods {
  readonly #folder: string;
  #count = 0;

  constructor(folder: string) {
    this.#folder = folder;
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  }

  /**
   * Gives the owner `bits` of what `fd` names (O_PATH is enough). `path`: its names from the workspace on. Returns how to give
   * it back by any descriptor of it.
   */
  grant(fd: number, path: readonly Buffer[], bits: number): RestoreMode {
    const { ino, mode } = fstatSync(fd, { bigint: true });
    const before = Number(mode) & PERMISSIONS;
    const loan: z.input<typeof LoanSchema> = {
      path: path.map((name) => name.toString('hex')),
      inode: String(ino),
      mode: before,
      lent: before | bits,
    };
    this.#count += 1;
    const note = join(this.#folder, `${process.pid}-${this.#count}`);
    writeFileSync(note, JSON.stringify(loan), { mode: 0o600 });
    chmodSync(`/proc/self/fd/${fd}`, loan.lent);
    return (open) => {
      // Somebody else's change of mode meanwhile is theirs to keep.
      const now = fstatSync(open).mode & PERMISSIONS;
      if (now === loan.lent) chmodSync(`/proc/self/fd/${open}`, before);
      unlinkSync(note);
    };
  }

  /** What an earlier sidecar did not give back. */
  recover(root: Directory): void {
    for (const name of readdirSync(this.#folder)) {
      const note = join(this.#folder, name);
      const loan = LoanSchema.safeParse(readNote(note));
      if (loan.success) {
        try {
          giveBack(root, loan.data);
        } catch (error) {
          // It is not there any more, or it is somebody else's by now.
          if (errnoOf(error) === undefined) throw error;
        }
      }
      unlinkSync(note);
    }
  }
}

/** Undefined for a note that was cut off: then nothing had been lent yet. */
function readNote(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function giveBack(root: Directory, { path, inode, mode, lent }: z.output<typeof LoanSchema>): void {
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
