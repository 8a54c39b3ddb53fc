// Runs in a thread of its own, because comparing lines is the only part of a patch that can take long.
import { parentPort } from 'node:worker_threads';
import { unifiedHunks } from './hunks.ts';
import type { LineLimits } from './line-changes.ts';

/** A request of LineThread. The answer is the hunks. */
export interface LineWork extends LineLimits {
  readonly before: Uint8Array;
  readonly after: Uint8Array;
}

const asBuffer = (bytes: Uint8Array): Buffer => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

parentPort?.on('message', ({ before, after, ...limits }: LineWork) => {
  const hunks = new Uint8Array(unifiedHunks(asBuffer(before), asBuffer(after), limits));
  parentPort?.postMessage(hunks, [hunks.buffer]);
});
