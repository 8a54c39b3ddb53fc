// Runs in a thread of its own, because comparing lines is the only part of a patch that can take long.
import { parentPort } from 'node:worker_threads';
import { unifiedHunks } from './hunks.ts';
import { lineChanges, type LineLimits } from './line-changes.ts';

/** A request of LineThread. The answer is the hunks, or the changes: four numbers of 32 bits each. */
export interface LineWork extends LineLimits {
  readonly wanted: 'hunks' | 'changes';
  readonly before: Uint8Array;
  readonly after: Uint8Array;
}

const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

parentPort?.on('message', ({ wanted, before, after, ...limits }: LineWork) => {
  const answer =
    wanted === 'hunks'
      ? new Uint8Array(unifiedHunks(asBuffer(before), asBuffer(after), limits))
      : new Uint8Array(
          Uint32Array.from(
            lineChanges(asBuffer(before), asBuffer(after), limits).flatMap((change) => [
              change.beforeStart,
              change.beforeEnd,
              change.afterStart,
              change.afterEnd,
            ]),
          ).buffer,
        );
  parentPort?.postMessage(answer, [answer.buffer]);
});
