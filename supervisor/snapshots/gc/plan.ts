/** How a pack is used. Sizes are bytes on disk. */
export interface PackUsage {
  readonly name: string;
  readonly bytes: number;
  readonly liveObjects: number;
  readonly deadBytes: number;
  /** Other packs with dead objects that dead objects of this pack reference. */
  readonly referencedPacks: ReadonlySet<string>;
}

export interface CollectionPlan {
  /** Packs without live objects, to be removed. */
  readonly drop: ReadonlySet<string>;
  /** Packs to be removed after their live objects have been copied. */
  readonly rewrite: ReadonlySet<string>;
}

/** A pack is rewritten when more than this share of it is dead. */
const DEAD_SHARE = 0.2;
/** Packs smaller than `bytes` are merged when there are more than `packs` of them. */
const SMALL = { bytes: 8 * 2 ** 20, packs: 16 } as const;

/**
 * Decides which packs are removed. A dead object may stay, but not without the objects it references, because a later
 * snapshot may come to need it. So with a pack all packs are removed that reference something in it.
 */
export function planCollection(packs: readonly PackUsage[]): CollectionPlan {
  const referencedBy = new Map<string, string[]>();
  for (const { name, referencedPacks } of packs) {
    for (const referenced of referencedPacks)
      referencedBy.set(referenced, [...(referencedBy.get(referenced) ?? []), name]);
  }
  const dead = new Set(packs.filter(({ liveObjects }) => liveObjects === 0).map(({ name }) => name));
  const drop = new Set(
    [...dead].filter((name) => [...withReferencing([name], referencedBy)].every((one) => dead.has(one))),
  );

  const rest = packs.filter(({ name }) => !drop.has(name));
  const small = rest.filter(({ bytes }) => bytes < SMALL.bytes);
  const merged = new Set((small.length > SMALL.packs ? small : []).map(({ name }) => name));
  const worthRewriting = rest
    .filter(
      ({ name, bytes, deadBytes, liveObjects }) =>
        liveObjects === 0 || merged.has(name) || deadBytes > bytes * DEAD_SHARE,
    )
    .map(({ name }) => name);
  return { drop, rewrite: withReferencing(worthRewriting, referencedBy) };
}

/** These packs and all that reference one of them, directly or indirectly. */
function withReferencing(
  names: readonly string[],
  referencedBy: ReadonlyMap<string, readonly string[]>,
): Set<string> {
  const found = new Set(names);
  // Iterating over a set includes the elements added meanwhile.
  for (const name of found) for (const one of referencedBy.get(name) ?? []) found.add(one);
  return found;
}
