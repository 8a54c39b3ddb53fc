import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { failpoint } from '../../base/failpoints.ts';
import { removeTree } from '../../store/remove-tree.ts';
import { storageError } from '../../store/storage-error.ts';
import type { Hash } from '../../../snapshot-format/objects.ts';
import { TimeSlice } from '../../../protocol/time-slice.ts';
import type { LineageStore, StoredPack } from '../store/lineage-store.ts';
import { type Reference, referencesOf } from '../store/references.ts';
import type { LineageStores } from '../store/lineage-stores.ts';
import {
  hasReferences,
  Marks,
  REFERENCING_KINDS,
  markTree,
  type ObjectLocation,
  locateObject,
  storedBytes,
} from './marks.ts';
import { PackCopy } from './pack-copy.ts';
import { type CollectionPlan, type PackUsage, planCollection } from './plan.ts';

/** How often a collection is retried when concurrent snapshots come to need the packs to be removed. */
const MAX_ATTEMPTS = 3;

export interface CollectOptions {
  readonly stores: Pick<LineageStores, 'use' | 'useExclusively'>;
  readonly lineage: string;
  /** The roots of all trees that must stay. Called again under the exclusive lock. */
  readonly roots: () => readonly Hash[];
  readonly signal?: AbortSignal | undefined;
  /** Performs writes that must succeed on a full disk. */
  readonly urgently?: (write: () => void) => void;
}

export interface CollectionResult {
  /** The disk space freed, or that would be freed by a planned collection. */
  readonly freedBytes: number;
  /** The number of content objects that snapshots need and the store lacks. */
  readonly missing: number;
}

/** The result of marking a store while others use it. */
interface Survey {
  readonly marks: Marks;
  readonly plan: CollectionPlan;
  /** Names of the packs that were marked. */
  readonly surveyed: ReadonlySet<string>;
  readonly missing: number;
}

/**
 * Removes the objects that no snapshot of a lineage needs (mark and sweep). Others use the store meanwhile; they wait
 * only while packs are moved and removed. A crash at any point loses nothing that is needed. Throws `snapshot_damaged`
 * when a tree cannot be read: the objects below it are unknown, so nothing is removed.
 */
export async function collectLineage(options: CollectOptions): Promise<CollectionResult> {
  let freed = 0;
  let missing = 0;
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
    const outcome = await collectOnce(options);
    freed += outcome.freedBytes;
    missing = outcome.missing;
    if (outcome.done) break;
  }
  return { freedBytes: freed, missing };
}

/** Estimates what `collectLineage` would free. Copied objects may compress differently. */
export async function planLineageCollection(options: CollectOptions): Promise<CollectionResult> {
  return await options.stores.use(options.lineage, async (store) => {
    const { plan, missing, marks } = await survey(store, options);
    const usages = await packUsages(store, marks, new TimeSlice(options.signal));
    const freedBytes = usages.reduce((sum, { name, bytes, deadBytes }) => {
      if (plan.drop.has(name)) return sum + bytes;
      return plan.rewrite.has(name) ? sum + deadBytes : sum;
    }, 0);
    return { freedBytes: Math.round(freedBytes), missing };
  });
}

async function collectOnce(
  options: CollectOptions,
): Promise<{ freedBytes: number; missing: number; done: boolean }> {
  const { stores, lineage } = options;
  const directories: string[] = [];
  try {
    const prepared = await stores.use(lineage, (store) => survey(store, options));
    const { plan, missing } = prepared;
    // Packs that need no copy are removed first: on a full disk this makes room for the copies.
    const dropped = await replace(options, prepared, plan.drop, []);
    if (dropped === null) return { freedBytes: 0, missing, done: false };
    if (plan.rewrite.size === 0) return { freedBytes: dropped, missing, done: true };

    let copied: readonly string[];
    try {
      copied = await stores.use(lineage, (store) => {
        const directory = join(store.incomingDirectory, `gc-${randomBytes(8).toString('hex')}`);
        directories.push(directory);
        return copyNeeded(store, prepared, directory);
      });
    } catch (error) {
      const failure = storageError(error, 'The packs of snapshots could not be rewritten');
      // Some space was freed, but not enough to rewrite packs.
      if (dropped > 0 && failure.code === 'no_space') return { freedBytes: dropped, missing, done: true };
      throw failure;
    }
    await failpoint('gc.after-copy');
    const rewritten = await replace(options, prepared, plan.rewrite, copied);
    return { freedBytes: dropped + (rewritten ?? 0), missing, done: rewritten !== null };
  } catch (error) {
    throw storageError(error, 'Unused packs of snapshots could not be removed');
  } finally {
    for (const directory of directories) await removeTree(directory);
  }
}

async function survey(store: LineageStore, { roots, signal }: CollectOptions): Promise<Survey> {
  const slices = new TimeSlice(signal);
  const marks = new Marks();
  const lost = new Set<string>();
  for (const root of roots()) {
    await markTree(store, marks, root, slices, {
      onLost: (reference, error) => {
        throwIfReferencing(reference, error);
        lost.add(reference.hash.toString('latin1'));
      },
    });
  }
  const plan = planCollection(await packUsages(store, marks, slices));
  // An unreadable pack may become readable again, for example after a disk error, so it stays while objects are
  // missing.
  const unreadable = lost.size === 0 ? store.unreadablePacks.map(({ name }) => name) : [];
  return {
    marks,
    plan: { drop: new Set([...plan.drop, ...unreadable]), rewrite: plan.rewrite },
    surveyed: new Set(store.packs.map(({ name }) => name)),
    missing: lost.size,
  };
}

/**
 * Throws for an unreadable object that references others, because those are then unknown. Lost content references
 * nothing.
 */
function throwIfReferencing({ kinds }: Reference, error: Error): void {
  if ((kinds & REFERENCING_KINDS) !== 0) throw error;
}

/** How each pack is used, and which packs its dead objects reference. */
async function packUsages(store: LineageStore, marks: Marks, slices: TimeSlice): Promise<PackUsage[]> {
  const usages: PackUsage[] = [];
  for (const pack of store.packs) {
    const referenced = new Set<string>();
    let liveObjects = 0;
    let deadBytes = 0;
    for (let index = 0; index < pack.index.objects; index += 1) {
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      if (marks.has(pack, index)) {
        liveObjects += 1;
        continue;
      }
      deadBytes += storedBytes({ pack, index });
      for (const named of await deadReferences(store, marks, { pack, index })) {
        if (named.pack !== pack) referenced.add(named.pack.name);
      }
    }
    usages.push({
      name: pack.name,
      bytes: pack.file.size,
      liveObjects,
      deadBytes,
      referencedPacks: referenced,
    });
  }
  return usages;
}

/** The dead objects that a dead object references. An unreadable object references nothing. */
async function deadReferences(
  store: LineageStore,
  marks: Marks,
  place: ObjectLocation,
): Promise<ObjectLocation[]> {
  const { hash, kind } = place.pack.index.object(place.index);
  if (!hasReferences(kind)) return [];
  let body: Buffer;
  try {
    body = await store.read(hash, kind);
  } catch {
    return [];
  }
  const found: ObjectLocation[] = [];
  for (const reference of referencesOf(kind, body)) {
    const named = locateObject(store.packs, reference.hash);
    if (named !== null && !marks.has(named.pack, named.index)) found.push(named);
  }
  return found;
}

/** Copies the live objects of the packs to be removed. */
async function copyNeeded(
  store: LineageStore,
  { marks, plan }: Survey,
  directory: string,
): Promise<readonly string[]> {
  const copy = new PackCopy(directory);
  try {
    for (const pack of store.packs) {
      if (!plan.rewrite.has(pack.name)) continue;
      for (const [frame, all] of pack.index.objectsByFrame().entries()) {
        const needed = all.filter(({ hash }) => marks.has(pack, pack.index.indexOf(hash)));
        if (needed.length > 0) await copy.add(pack, frame, all, needed);
      }
    }
    return await copy.end();
  } finally {
    await copy.abandon();
  }
}

/**
 * Replaces old packs by new files under the exclusive lock. Null, and nothing done, if a snapshot has meanwhile come to
 * need an object of the old packs.
 */
async function replace(
  { stores, lineage, roots, signal, urgently }: CollectOptions,
  { marks, surveyed }: Survey,
  old: ReadonlySet<string>,
  files: readonly string[],
): Promise<number | null> {
  if (old.size === 0) return 0;
  return await stores.useExclusively(lineage, async (store) => {
    const slices = new TimeSlice(signal);
    const needed = new Set<string>();
    const onMark = ({ pack }: ObjectLocation): void => {
      if (old.has(pack.name)) needed.add(pack.name);
    };
    for (const root of roots())
      await markTree(store, marks, root, slices, { onMark, onLost: throwIfReferencing });
    for (const pack of store.packs) {
      if (surveyed.has(pack.name)) continue;
      // Dead objects of packs that arrived meanwhile must not lose the objects they reference.
      for (const named of await referencedByNewPack(store, marks, pack)) onMark(named);
    }
    if (needed.size > 0) return null;
    const before = diskBytes(store);
    await store.publish(files.map((path) => ({ path })));
    await failpoint('gc.after-publish');
    await store.dropPacks(old, urgently);
    return before - diskBytes(store);
  });
}

async function referencedByNewPack(
  store: LineageStore,
  marks: Marks,
  pack: StoredPack,
): Promise<ObjectLocation[]> {
  const found: ObjectLocation[] = [];
  for (let index = 0; index < pack.index.objects; index += 1) {
    if (!marks.has(pack, index)) found.push(...(await deadReferences(store, marks, { pack, index })));
  }
  return found;
}

function diskBytes(store: LineageStore): number {
  return store.bytes + store.unreadablePacks.reduce((sum, { bytes }) => sum + bytes, 0);
}
