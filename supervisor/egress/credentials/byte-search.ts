const BYTES = 256;

/**
 * Finds any of several byte strings in a stream, in one pass (Aho and Corasick's automaton). The table has 1 KiB for
 * each byte of the patterns.
 */
export class ByteSearch {
  /** The next state by state and byte. */
  readonly #next: Int32Array;
  /** Length of the longest end of what was read that begins a pattern, by state. */
  readonly #depth: Int32Array;
  readonly #found: Uint8Array;

  constructor(patterns: readonly Buffer[]) {
    const most = 1 + patterns.reduce((sum, pattern) => sum + pattern.length, 0);
    const next = new Int32Array(most * BYTES).fill(-1);
    const depth = new Int32Array(most);
    const found = new Uint8Array(most);
    let states = 1;
    for (const pattern of patterns) {
      let state = 0;
      for (const byte of pattern) {
        const at = state * BYTES + byte;
        if (next[at] === -1) {
          next[at] = states;
          depth[states] = (depth[state] ?? 0) + 1;
          states += 1;
        }
        state = next[at] ?? 0;
      }
      found[state] = 1;
    }
    completeTransitions(next, found, states);
    this.#next = next.slice(0, states * BYTES);
    this.#depth = depth.slice(0, states);
    this.#found = found.slice(0, states);
  }

  get tableBytes(): number {
    return this.#next.byteLength;
  }

  /** Reads on from `state` (0 at the beginning). −1 if a pattern ends in these bytes. */
  read(bytes: Uint8Array, state: number): number {
    let current = state;
    for (const byte of bytes) {
      current = this.#next[current * BYTES + byte] ?? 0;
      if (this.#found[current] === 1) return -1;
    }
    return current;
  }

  /** How many of the last bytes that were read may be the beginning of a pattern. */
  pending(state: number): number {
    return this.#depth[state] ?? 0;
  }
}

/** Turns a tree of patterns into an automaton, breadth first. */
function completeTransitions(next: Int32Array, found: Uint8Array, states: number): void {
  const fallback = new Int32Array(states);
  const queue: number[] = [];
  for (let byte = 0; byte < BYTES; byte += 1) {
    const child = next[byte] ?? -1;
    if (child === -1) next[byte] = 0;
    else queue.push(child);
  }
  // The queue grows meanwhile.
  for (const state of queue) {
    const other = fallback[state] ?? 0;
    if (found[other] === 1) found[state] = 1;
    for (let byte = 0; byte < BYTES; byte += 1) {
      const place = state * BYTES + byte;
      const child = next[place] ?? -1;
      const elsewhere = next[other * BYTES + byte] ?? 0;
      if (child === -1) next[place] = elsewhere;
      else {
        fallback[child] = elsewhere;
        queue.push(child);
      }
    }
  }
}
