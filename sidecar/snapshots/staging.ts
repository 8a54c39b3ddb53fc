import { randomBytes } from 'node:crypto';
import { closeSync, constants, readdirSync } from 'node:fs';
import { RESERVED_NAMES } from '../../protocol/paths.ts';
import { Directory } from '../files/directory.ts';
import { lendModes, removeTree } from '../files/remove-tree.ts';
import { O_PATH } from '../files/resolver.ts';
import type { System } from './system.ts';

const { O_DIRECTORY, O_NOFOLLOW } = constants;
const PREFIX = `${RESERVED_NAMES[0]}restore-`;

/**
 * A folder in the workspace where everything new is made before anything is touched: a restore that finds an object damaged or
 * the disk full has changed nothing. What is replaced is moved here and removed at the end.
 */
export class Staging {
  readonly fd: number;
  readonly #system: System;
  readonly #root: Directory;
  readonly #name: string;
  #count = 0;

  private constructor(system: System, root: Directory, name: string, fd: number) {
    this.#system = system;
    this.#root = root;
    this.#name = name;
    this.fd = fd;
  }

  /** `root` stays the caller's. */
  static create(system: System, root: Directory): Staging {
    const name = PREFIX + randomBytes(6).toString('hex');
    system.makeDirectoryAt(root.fd, Buffer.from(name), 0o700);
    const at = system.nameAt(Buffer.from(name));
    return new Staging(system, root, name, system.openAt(root.fd, at, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  }

  /** Removes what restores that were cut off have left. */
  static async clear(root: Directory): Promise<number> {
    const left = readdirSync(root.self, 'latin1').filter((name) => name.startsWith(PREFIX));
    for (const name of left) await removeTree(root, name);
    return left.length;
  }

  newName(): Buffer {
    this.#count += 1;
    return Buffer.from(String(this.#count));
  }

  /** Moves a folder in here, to be removed with everything else. */
  takeAway(directory: number, name: Buffer): void {
    // To move a folder is to write its `..`.
    lendModes(Directory.over(directory), name);
    this.#system.renameAt(directory, name, this.fd, this.newName());
  }

  async end(): Promise<void> {
    closeSync(this.fd);
    await removeTree(this.#root, this.#name);
  }
}
