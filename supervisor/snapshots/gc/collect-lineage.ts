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

/** How often it is tried anew where snapshots that are taken meanwhile come to need what was to go. */
const TRIES = 3;

export interface CollectOptions {
  readonly stores: Pick<LineageStores, 'use' | 'useExclusively'>;
  readonly lineage: string;
  /** Hashes of all trees that are needed now. Asked again when nobody else uses the store. */
  readonly roots: () => readonly Hash[];
  readonly signal?: AbortSignal | undefined;
  /** Writes what has to be written on a full disk too. */
  readonly urgently?: (write: () => void) => void;
}

export interface CollectionResult {
  /** What its packs take less than before; what they would, where it was only planned. */
  readonly freedBytes: number;
  /** Content that a snapshot needs and that is not there. */
  readonly missing: number;
}

/** What was found out about a store while others used it. */
interface Survey {
  readonly marks: Marks;
  readonly plan: CollectionPlan;
  /** Names of the packs that were looked at. */
  readonly known: ReadonlySet<string>;
  readonly missing: number;
}

/**
 * Takes away what no snapshot of a lineage needs. Others may use it meanwhile: they wait only while files change places. Killed
 * anywhere, nothing that is needed is gone. Throws `snapshot_damaged` where a tree cannot be read: then nobody can tell
 * what is needed below it, and nothing goes.
 */
export async function collectLineage(options: CollectOptions): Promise<CollectionResult> {
  let freed = 0;
  let missing = 0;
  for (let attempt = 0; attempt < TRIES; attempt += 1) {
    const outcome = await collectOnce(options);
    freed += outcome.freedBytes;
    missing = outcome.missing;
    if (outcome.done) break;
  }
  return { freedBytes: freed, missing };
}

/** What `collectLineage` would give back, more or less: what is copied may be compressed otherwise. */
export async function planLineageCollection(options: CollectOptions): Promise<CollectionResult> {
  return await options.stores.use(options.lineage, async (store) => {
    const { plan, missing, marks } = await survey(store, options);
    const uses = await usesOf(store, marks, new TimeSlice(options.signal));
    const freedBytes = uses.reduce((sum, { name, bytes, deadBytes }) => {
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
    // What needs no room goes first: on a full disk it is what makes some.
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
      const failure = storageError(error, 'Snapshots could not be packed together');
      // Room was made, if not enough to make more of it.
      if (dropped > 0 && failure.code === 'no_space') return { freedBytes: dropped, missing, done: true };
      throw failure;
    }
    await failpoint('gc.after-copy');
    const rewritten = await replace(options, prepared, plan.rewrite, copied);
    return { freedBytes: dropped + (rewritten ?? 0), missing, done: rewritten !== null };
  } catch (error) {
    throw storageError(error, 'Snapshots could not be cleared away');
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
        throwForNaming(reference, error);
        lost.add(reference.hash.toString('latin1'));
      },
    });
  }
  const plan = planCollection(await usesOf(store, marks, slices));
  // A file that is no pack any more may be one again – a disk that comes back – as long as something is missed.
  const broken = lost.size === 0 ? store.unreadablePacks.map(({ name }) => name) : [];
  return {
    marks,
    plan: { drop: new Set([...plan.drop, ...broken]), rewrite: plan.rewrite },
    known: new Set(store.packs.map(({ name }) => name)),
    missing: lost.size,
  };
}

/** Below a tree that cannot be read nobody knows what is needed. Content that is lost takes nothing with it. */
function throwForNaming({ kinds }: Reference, error: Error): void {
  if ((kinds & REFERENCING_KINDS) !== 0) throw error;
}

/** How each pack is used, and which unneeded objects stand in the way of which others. */
async function usesOf(store: LineageStore, marks: Marks, slices: TimeSlice): Promise<PackUsage[]> {
  const uses: PackUsage[] = [];
  for (const pack of store.packs) {
    const naming = new Set<string>();
    let liveObjects = 0;
    let deadBytes = 0;
    for (let index = 0; index < pack.index.objects; index += 1) {
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      if (marks.has(pack, index)) {
        liveObjects += 1;
        continue;
      }
      deadBytes += storedBytes({ pack, index });
      for (const named of await deadNamed(store, marks, { pack, index })) {
        if (named.pack !== pack) naming.add(named.pack.name);
      }
    }
    uses.push({ name: pack.name, bytes: pack.file.size, liveObjects, deadBytes, referencedPacks: naming });
  }
  return uses;
}

/** The unneeded objects that an unneeded one names. What cannot be read keeps nothing. */
async function deadNamed(
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

/** Copies what is needed of the packs that are to go. */
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
 * Puts packs in the place of others, with the store to itself. Null, and nothing done, where somebody has come to need something
 * that would go.
 */
async function replace(
  { stores, lineage, roots, signal, urgently }: CollectOptions,
  { marks, known }: Survey,
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
      await markTree(store, marks, root, slices, { onMark, onLost: throwForNaming });
    for (const pack of store.packs) {
      if (known.has(pack.name)) continue;
      // What came meanwhile and is not needed either must not lose what it names.
      for (const named of await namedByNew(store, marks, pack)) onMark(named);
    }
    if (needed.size > 0) return null;
    const before = diskBytes(store);
    await store.publish(files.map((path) => ({ path })));
    await failpoint('gc.after-publish');
    await store.dropPacks(old, urgently);
    return before - diskBytes(store);
  });
}

async function namedByNew(store: LineageStore, marks: Marks, pack: StoredPack): Promise<ObjectLocation[]> {
  const found: ObjectLocation[] = [];
  for (let index = 0; index < pack.index.objects; index += 1) {
    if (!marks.has(pack, index)) found.push(...(await deadNamed(store, marks, { pack, index })));
  }
  return found;
}

function diskBytes(store: LineageStore): number {
  return store.bytes + store.unreadablePacks.reduce((sum, { bytes }) => sum + bytes, 0);
}
