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
  readonly chmods: TemporaryChmods;
  readonly temporaryEntries: TemporaryEntries;
  readonly root: Directory;
  /** The result of a complete scan just before. */
  readonly baseline: CachedDirectory;
  readonly hardLinks: ReadonlyMap<bigint, readonly EntryLocation[]>;
  readonly objects: RemoteObjects;
  /** Empty: everything. */
  readonly path: readonly Buffer[];
  readonly work: TaskRuntime;
}

/**
 * One restore. First, everything missing is created in a staging directory. Then names are moved, which needs no
 * content and no space. After an interruption, the next restore continues from the workspace's state.
 */
export class Restore {
  readonly #options: RestoreOptions;
  /** New directories whose state is known. */
  readonly adopted: CachedDirectory[] = [];
  /** The workspace has been changed. */
  hasTouchedFiles = false;
  #isDone = false;

  constructor(options: RestoreOptions) {
    this.#options = options;
  }

  /** Counts the changes without making any. */
  async dryRun(wanted: DirectoryEntry): Promise<RestoreResult> {
    const plan = this.#plan(new HardLinks(this.#options.hardLinks), null);
    await plan.compute(wanted, this.#options.baseline);
    return plan.counts;
  }

  async run(wanted: DirectoryEntry): Promise<RestoreResult> {
    const { system, chmods, root, baseline, path } = this.#options;
    const { entry } = baseline;
    const isDenied = (entry.mode & OWNER_ALL) !== OWNER_ALL;
    try {
      const restoreMode = isDenied ? chmods.grant(root.fd, [], OWNER_ALL) : null;
      try {
        return await this.#staged(wanted);
      } finally {
        restoreMode?.(root.fd);
        // Only the staging directory was created and removed in the top directory.
        if (!this.hasTouchedFiles || path.length > 1) system.setMtime(root.fd, entry.mtimeNs);
        else if (path.length === 0 && this.#isDone) setAttributes(system, root.fd, wanted);
      }
    } catch (error) {
      throw toFileError(error, WORKSPACE);
    }
  }

  async #staged(wanted: DirectoryEntry): Promise<RestoreResult> {
    const { system, chmods, temporaryEntries, root, baseline, hardLinks, objects, path, work } =
      this.#options;
    const check = (): void => work.check();
    let opened: StagingDirectory | undefined;
    const staging = (): StagingDirectory =>
      (opened ??= StagingDirectory.create({ system, temporaryEntries, root }));
    try {
      const links = new HardLinks(hardLinks);
      const plan = this.#plan(links, () => staging().newName());
      await plan.compute(wanted, baseline);
      const builder = new StagingBuilder({
        system,
        chmods,
        objects,
        links,
        root: root.fd,
        staging,
        path,
        check,
      });
      await builder.build(plan.toStage);
      plan.counts.created += builder.created;
      plan.counts.bytes += builder.bytes;
      // After this, fingerprints of the new files are reliable.
      if (builder.builtDirectories.size > 0) await waitForNextTimestamp(system);
      // From here on, finishing takes less time than a cancellation would save.
      this.hasTouchedFiles = true;
      applySteps(plan.steps, { system, chmods, root: root.fd, staging });
      this.#isDone = true;
      for (const { staged, directory, entry } of plan.toStage) {
        const made = builder.builtDirectories.get(nameKey(staged));
        if (made === undefined) continue;
        made.name = entry.name;
        made.entry = { ...made.entry, name: entry.name };
        directory.addChild(made);
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
