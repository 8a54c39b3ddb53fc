import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/** Connects two streams in both directions, at the reader's pace. Resolves when both have ended; an error ends both. */
export async function joinStreams(left: Duplex, right: Duplex): Promise<void> {
  await Promise.allSettled([pipeline(left, right), pipeline(right, left)]);
  left.destroy();
  right.destroy();
}
