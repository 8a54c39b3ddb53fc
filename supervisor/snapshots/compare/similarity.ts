/** Chunks end at a newline or after this many bytes, so that files without lines can be compared too. */
const CHUNK_BYTES = 64;
/** Greater than the length of any chunk, so that a hash and a length fit into one number. */
const LENGTHS = 128;
const NEWLINE = 0x0a;

/** The chunks of a file as sorted numbers, and the length of the file. */
export interface Sketch {
  readonly chunks: Float64Array;
  readonly bytes: number;
}

export function sketchOf(content: Uint8Array): Sketch {
  const chunks = new Float64Array(countChunks(content));
  let at = 0;
  for (let from = 0; from < content.length; at += 1) {
    const to = chunkEnd(content, from);
    // FNV-1a. A collision only makes two files seem more similar than they are.
    let hash = 0x811c9dc5;
    for (let index = from; index < to; index += 1) hash = Math.imul(hash ^ (content[index] ?? 0), 0x01000193);
    chunks[at] = (hash >>> 0) * LENGTHS + (to - from);
    from = to;
  }
  return { chunks: chunks.sort(), bytes: content.length };
}

/**
 * The share of the longer file that the other one contains, from 0 to 1. As in git, the order of chunks does not
 * matter.
 */
export function similarity(one: Sketch, other: Sketch): number {
  let common = 0;
  let left = 0;
  let right = 0;
  while (left < one.chunks.length && right < other.chunks.length) {
    const [mine = 0, theirs = 0] = [one.chunks[left], other.chunks[right]];
    if (mine === theirs) common += mine % LENGTHS;
    if (mine <= theirs) left += 1;
    if (mine >= theirs) right += 1;
  }
  const longer = Math.max(one.bytes, other.bytes);
  return longer === 0 ? 0 : common / longer;
}

function countChunks(content: Uint8Array): number {
  let count = 0;
  for (let from = 0; from < content.length; count += 1) from = chunkEnd(content, from);
  return count;
}

function chunkEnd(content: Uint8Array, from: number): number {
  const most = Math.min(content.length, from + CHUNK_BYTES);
  for (let at = from; at < most; at += 1) if (content[at] === NEWLINE) return at + 1;
  return most;
}
