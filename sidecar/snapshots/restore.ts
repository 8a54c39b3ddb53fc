import type { DirectoryEntry } from '../../snapshot-format/entries.ts';
import type { RestoreResult } from '../../snapshot-format/wire.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { Directory } from '../files/directory.ts';
import { explained } from '../files/failures.ts';
import type { OwnEntries } from '../files/own-entries.ts';
import { dress } from './attributes.ts';
import { type Folder, keyOf } from './folder.ts';
import { HardLinks } from './hard-links.ts';
import type { LentModes } from './lent-modes.ts';
import type { RemoteObjects } from './remote-objects.ts';
import { Maker } from './restore-make.ts';
import { RestorePlan } from './restore-plan.ts';
import { takeSteps } from './restore-run.ts';
import { Staging } from './staging.ts';
import type { Work } from './store.ts';
import type { System } from './system.ts';
import { nextTick } from './tick.ts';
import type { LinkedName } from './walk.ts';

const OWNER_ALL = 0o700;

export interface RestoreOptions {
  readonly system: System;
  readonly lent: LentModes;
  readonly own: OwnEntries;
  readonly root: Directory;
  /** What a complete look has found just now. */
  readonly known: Folder;
  readonly linked: ReadonlyMap<bigint, readonly LinkedName[]>;
  readonly objects: RemoteObjects;
  /** Empty: everything. */
  readonly path: readonly Buffer[];
  readonly work: Work;
}

/**
 * One restore. First everything that is missing is made beside the workspace's files; then names are moved, without anything
 * that could be missing or not fit. Cut off at any point, the next one goes on from what it finds.
 */
export class Restore {
  readonly #options: RestoreOptions;
  /** Folders that are new, and known. */
  readonly adopted: Folder[] = [];
  /** Something was touched. */
  isBegun = false;
  #isDone = false;

  constructor(options: RestoreOptions) {
    this.#options = options;
  }

  /** Changes nothing. */
  async count(wanted: DirectoryEntry): Promise<RestoreResult> {
    const plan = this.#plan(new HardLinks(this.#options.linked), null);
    await plan.make(wanted, this.#options.known);
    return plan.counts;
  }

  async run(wanted: DirectoryEntry): Promise<RestoreResult> {
    const { system, lent, root, known, path } = this.#options;
    const { entry } = known;
    const isDenied = (entry.mode & OWNER_ALL) !== OWNER_ALL;
    try {
      const giveBack = isDenied ? lent.lend(root.fd, [], OWNER_ALL) : null;
      try {
        return await this.#staged(wanted);
      } finally {
        giveBack?.(root.fd);
        // The staging folder has come and gone: nothing else may have changed at the top.
        if (!this.isBegun || path.length > 1) system.setMtime(root.fd, entry.mtimeNs);
        else if (path.length === 0 && this.#isDone) dress(system, root.fd, wanted);
      }
    } catch (error) {
      throw explained(error, WORKSPACE);
    }
  }

  async #staged(wanted: DirectoryEntry): Promise<RestoreResult> {
    const { system, lent, own, root, known, linked, objects, path, work } = this.#options;
    const check = (): void => work.check();
    let opened: Staging | undefined;
    const staging = (): Staging => (opened ??= Staging.create({ system, own, root }));
    try {
      const links = new HardLinks(linked);
      const plan = this.#plan(links, () => staging().newName());
      await plan.make(wanted, known);
      const maker = new Maker({ system, lent, objects, links, root: root.fd, staging, path, check });
      await maker.make(plan.wanted);
      plan.counts.created += maker.created;
      plan.counts.bytes += maker.bytes;
      // Then what is known of files that were made by now can be trusted.
      if (maker.made.size > 0) await nextTick(system);
      // From here on it is shorter to finish than to be asked.
      this.isBegun = true;
      takeSteps(plan.steps, { system, lent, root: root.fd, staging });
      this.#isDone = true;
      for (const { staged, folder, entry } of plan.wanted) {
        const made = maker.made.get(keyOf(staged));
        if (made === undefined) continue;
        made.name = entry.name;
        made.entry = { ...made.entry, name: entry.name };
        folder.adopt(made);
        this.adopted.push(made);
      }
      work.progress('restored', plan.steps.length);
      return plan.counts;
    } finally {
      await opened?.end();
    }
  }

  #plan(links: HardLinks, newName: (() => Buffer) | null): RestorePlan {
    const { objects, path, work } = this.#options;
    return new RestorePlan({ objects, links, newName, path, check: () => work.check() });
  }
}
