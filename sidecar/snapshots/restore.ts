import type { DirectoryEntry } from '../../snapshot-format/entries.ts';
import type { RestoreResult } from '../../snapshot-format/sidecar-calls.ts';
import { WORKSPACE } from '../../protocol/paths.ts';
import type { Directory } from '../files/directory.ts';
import { toFileError } from '../files/file-errors.ts';
import type { TemporaryEntries } from '../files/temporary-entries.ts';
import { setAttributes } from './attributes.ts';
import { type CachedDirectory, nameKey } from './cached-directory.ts';
import { HardLinks } from './hard-links.ts';
import type { TemporaryChmods } from './temporary-chmods.ts';
import type { RemoteObjects } from './remote-objects.ts';
import { StagingBuilder } from './staging-builder.ts';
import { RestorePlan } from './restore-plan.ts';
import { applySteps } from './apply-steps.ts';
import { StagingDirectory } from './staging-directory.ts';
import type { TaskRuntime } from './store.ts';
import type { SystemCalls } from './system-calls.ts';
import { waitForNextTimestamp } from './timestamp-granularity.ts';
import type { EntryLocation } from './walk.ts';

const OWNER_ALL = 0o700;

export interface RestoreOptions {
  readonly system: SystemCalls;
  readonly lent: TemporaryChmods;
  readonly own: TemporaryEntries;
  readonly root: Directory;
  /** What a complete look has found just now. */
  readonly baseline: CachedDirectory;
  readonly hardLinks: ReadonlyMap<bigint, readonly EntryLocation[]>;
  readonly objects: RemoteObjects;
  /** Empty: everything. */
  readonly path: readonly Buffer[];
  readonly work: TaskRuntime;
}

/**
 * One restore. First everything that is missing is made beside the workspace's files; then names are moved, without anything
 * that could be missing or not fit. Cut off at any point, the next one goes on from what it finds.
 */
export class Restore {
  readonly #options: RestoreOptions;
  /** Folders that are new, and known. */
  readonly adopted: CachedDirectory[] = [];
  /** Something was touched. */
  hasTouchedFiles = false;
  #isDone = false;

  constructor(options: RestoreOptions) {
    this.#options = options;
  }

  /** Changes nothing. */
  async dryRun(wanted: DirectoryEntry): Promise<RestoreResult> {
    const plan = this.#plan(new HardLinks(this.#options.hardLinks), null);
    await plan.compute(wanted, this.#options.baseline);
    return plan.counts;
  }

  async run(wanted: DirectoryEntry): Promise<RestoreResult> {
    const { system, lent, root, baseline, path } = this.#options;
    const { entry } = baseline;
    const isDenied = (entry.mode & OWNER_ALL) !== OWNER_ALL;
    try {
      const giveBack = isDenied ? lent.grant(root.fd, [], OWNER_ALL) : null;
      try {
        return await this.#staged(wanted);
      } finally {
        giveBack?.(root.fd);
        // The staging folder has come and gone: nothing else may have changed at the top.
        if (!this.hasTouchedFiles || path.length > 1) system.setMtime(root.fd, entry.mtimeNs);
        else if (path.length === 0 && this.#isDone) setAttributes(system, root.fd, wanted);
      }
    } catch (error) {
      throw toFileError(error, WORKSPACE);
    }
  }

  async #staged(wanted: DirectoryEntry): Promise<RestoreResult> {
    const { system, lent, own, root, baseline, hardLinks, objects, path, work } = this.#options;
    const check = (): void => work.check();
    let opened: StagingDirectory | undefined;
    const staging = (): StagingDirectory => (opened ??= StagingDirectory.create({ system, own, root }));
    try {
      const links = new HardLinks(hardLinks);
      const plan = this.#plan(links, () => staging().newName());
      await plan.compute(wanted, baseline);
      const maker = new StagingBuilder({ system, lent, objects, links, root: root.fd, staging, path, check });
      await maker.build(plan.toStage);
      plan.counts.created += maker.created;
      plan.counts.bytes += maker.bytes;
      // Then what is known of files that were made by now can be trusted.
      if (maker.builtDirectories.size > 0) await waitForNextTimestamp(system);
      // From here on it is shorter to finish than to be asked.
      this.hasTouchedFiles = true;
      applySteps(plan.steps, { system, lent, root: root.fd, staging });
      this.#isDone = true;
      for (const { staged, folder, entry } of plan.toStage) {
        const made = maker.builtDirectories.get(nameKey(staged));
        if (made === undefined) continue;
        made.name = entry.name;
        made.entry = { ...made.entry, name: entry.name };
        folder.addChild(made);
        this.adopted.push(made);
      }
      work.progress('restored', plan.steps.length);
      return plan.counts;
    } finally {
      await opened?.remove();
    }
  }

  #plan(links: HardLinks, newName: (() => Buffer) | null): RestorePlan {
    const { objects, path, work } = this.#options;
    return new RestorePlan({ objects, links, newName, path, check: () => work.check() });
  }
}
