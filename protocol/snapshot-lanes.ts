/** A state of the files in the graph, or a session that began with one. */
export interface GraphNode {
  readonly id: string;
  /** The node that this one followed; null where that is not known or there is none. */
  readonly parent: string | null;
}

/** One row of the drawing. Lanes count from 0 at the left. */
export interface GraphRow {
  readonly id: string;
  readonly lane: number;
  /** A line comes from the row above in the node's own lane. */
  readonly fromAbove: boolean;
  /** A line goes on to the row below in the node's own lane. */
  readonly toBelow: boolean;
  /** Lanes that pass by, from the top of the row to its bottom. */
  readonly passing: readonly number[];
  /** Lanes whose line comes from above and ends in the node: branches that began here. */
  readonly joining: readonly number[];
}

export interface GraphLayout {
  readonly rows: readonly GraphRow[];
  /** How many lanes the widest row has. */
  readonly lanes: number;
}

/**
 * Draws nodes as lanes, the newest node first, as `git log --graph` does: a node takes the leftmost lane that waits for it,
 * and its parent goes on in that lane. Lanes beyond `maxLanes` are drawn in the last one. A parent that comes before its
 * child, or twice, ends the line instead of crossing itself.
 */
export function layoutGraph(nodes: readonly GraphNode[], maxLanes = 6): GraphLayout {
  const places = new Map(nodes.map(({ id }, at) => [id, at]));
  /** Lane → the node that its line goes down to; null for a lane that is free. */
  const waiting: (string | null)[] = [];
  const drawn = (lane: number): number => Math.min(lane, maxLanes - 1);
  let lanes = 1;
  const rows = nodes.map(({ id, parent }, at): GraphRow => {
    const arriving = waiting.flatMap((wanted, lane) => (wanted === id ? [lane] : []));
    const lane = arriving[0] ?? freeLane(waiting);
    for (const one of arriving) waiting[one] = null;
    const passing = waiting.flatMap((wanted, one) => (wanted === null ? [] : [drawn(one)]));
    // What is not in the list, or above, has no row that the line could go to.
    const follows = parent !== null && (places.get(parent) ?? -1) > at ? parent : null;
    waiting[lane] = follows;
    while (waiting.at(-1) === null) waiting.pop();
    const joining = arriving.slice(1).map(drawn);
    const own = drawn(lane);
    lanes = Math.max(lanes, own + 1, ...passing.map((one) => one + 1), ...joining.map((one) => one + 1));
    return {
      id,
      lane: own,
      fromAbove: arriving.length > 0,
      toBelow: follows !== null,
      passing: [...new Set(passing)],
      joining: [...new Set(joining)].filter((one) => one !== own),
    };
  });
  return { rows, lanes };
}

function freeLane(waiting: readonly (string | null)[]): number {
  const free = waiting.indexOf(null);
  return free === -1 ? waiting.length : free;
}
