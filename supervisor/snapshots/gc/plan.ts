/** How a pack is used. Bytes are those on the disk. */
export interface PackUsage {
  readonly name: string;
  readonly bytes: number;
  readonly liveObjects: number;
  readonly deadBytes: number;
  /** Other packs with unneeded objects that are named by unneeded objects of this one. */
  readonly referencedPacks: ReadonlySet<string>;
}

export interface CollectionPlan {
  /** Can go as they are. */
  readonly drop: ReadonlySet<string>;
  /** Can go when what is needed of them has been copied. */
  readonly rewrite: ReadonlySet<string>;
}

/** A pack is worth copying when so much of it is not needed. */
const DEAD_SHARE = 0.2;
/** Packs smaller than this are joined, when there are more than so many: each one has to be asked for each object. */
const SMALL = { bytes: 8 * 2 ** 20, packs: 16 } as const;

/**
 * Which packs go. An object that nobody needs may stay, but not without what it names: a later snapshot may come to need it. So
 * with a pack go all that name something in it.
 */
export function planCollection(packs: readonly PackUsage[]): CollectionPlan {
  const namedBy = new Map<string, string[]>();
  for (const { name, referencedPacks } of packs) {
    for (const named of referencedPacks) namedBy.set(named, [...(namedBy.get(named) ?? []), name]);
  }
  const unneeded = new Set(packs.filter(({ liveObjects }) => liveObjects === 0).map(({ name }) => name));
  const drop = new Set(
    [...unneeded].filter((name) => [...withNaming([name], namedBy)].every((one) => unneeded.has(one))),
  );

  const rest = packs.filter(({ name }) => !drop.has(name));
  const small = rest.filter(({ bytes }) => bytes < SMALL.bytes);
  const joined = new Set((small.length > SMALL.packs ? small : []).map(({ name }) => name));
  const worth = rest
    .filter(
      ({ name, bytes, deadBytes, liveObjects }) =>
        liveObjects === 0 || joined.has(name) || deadBytes > bytes * DEAD_SHARE,
    )
    .map(({ name }) => name);
  return { drop, rewrite: withNaming(worth, namedBy) };
}

/** These, and all that name one of them, however indirectly. */
function withNaming(names: readonly string[], namedBy: ReadonlyMap<string, readonly string[]>): Set<string> {
  const found = new Set(names);
  // A set goes on with what is added while it is gone through.
  for (const name of found) for (const one of namedBy.get(name) ?? []) found.add(one);
  return found;
}
