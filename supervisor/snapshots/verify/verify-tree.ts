import type { Damage } from '../../../protocol/snapshots.ts';
import { extractObject } from '../../../snapshot-format/frames.ts';
import type { Hash } from '../../../snapshot-format/objects.ts';
import { readFrame } from '../../../snapshot-format/pack-index.ts';
import { hasReferences, Marks, markTree } from '../gc/marks.ts';
import { TimeSlice } from '../../../protocol/time-slice.ts';
import type { LineageStore, StoredPack } from '../store/lineage-store.ts';
import { locateDamage } from './locate-damage.ts';
import { damageReason } from './damage-reason.ts';

/** How many damages are reported individually. */
const MAX_REPORTED = 1000;

export interface VerifyResult {
  readonly ok: boolean;
  /** The needed objects that exist, and their bytes. */
  readonly objects: number;
  readonly bytes: number;
  readonly damaged: number;
  readonly damages: Damage[];
}

/**
 * Reads and checks every object that a tree needs, each once, and whether the objects form a tree. The store must have
 * been opened for this call: the caches of an older one may hold intact bytes that are damaged on disk.
 */
export async function verifyTree(
  store: LineageStore,
  root: Hash,
  signal?: AbortSignal,
): Promise<VerifyResult> {
  const slices = new TimeSlice(signal);
  const needed = new Marks();
  const lost = new Map<string, Damage>();
  const lose = (hash: Hash, pack: string | null, error: unknown): void => {
    lost.set(hash.toString('hex'), {
      what: damageReason(error),
      pack,
      object: hash.toString('hex'),
      path: null,
    });
  };
  await markTree(store, needed, root, slices, {
    onLost: ({ hash }, error) => lose(hash, store.find(hash)?.pack.name ?? null, error),
  });

  let objects = 0;
  let bytes = 0;
  for (const pack of store.packs) {
    for (const [index, inFrame] of pack.index.objectsByFrame().entries()) {
      if (slices.isUsedUp) await slices.yieldToEventLoop();
      const here = inFrame.filter(({ hash }) => needed.has(pack, pack.index.indexOf(hash)));
      if (here.length === 0) continue;
      objects += here.length;
      const raw = await frameOf(pack, index);
      for (const object of here) {
        bytes += object.length;
        try {
          if (raw instanceof Error) throw raw;
          extractObject(raw, object);
        } catch (error) {
          if (!hasReferences(object.kind) || !lost.has(object.hash.toString('hex'))) {
            lose(object.hash, pack.name, error);
          }
        }
      }
    }
  }

  const damages = await locateDamage(store, root, lost, slices);
  if (damages.length > 0) {
    for (const { name, error } of store.unreadablePacks) {
      damages.push({
        what: `it cannot be read as a pack: ${damageReason(error)}`,
        pack: name,
        object: null,
        path: null,
      });
    }
  }
  return {
    ok: damages.length === 0,
    objects,
    bytes,
    damaged: damages.length,
    damages: damages.slice(0, MAX_REPORTED),
  };
}

async function frameOf(pack: StoredPack, index: number): Promise<Buffer | Error> {
  try {
    return await readFrame(pack.file, pack.index.frame(index));
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}
