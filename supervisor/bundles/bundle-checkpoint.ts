import type { KeyObject } from 'node:crypto';
import { openEnvelope } from '../../protocol/envelope.ts';
import { type Checkpoint, CHECKPOINT_TYPE } from '../../protocol/history.ts';
import { readCheckpoint } from '../history/checkpoints.ts';
import { type BundleEvent, refusedBundle } from './bundle-format.ts';

export interface CheckpointContext {
  /** Of the bundle. */
  readonly publicKey: KeyObject;
  readonly home: string;
  readonly session: string;
  readonly events: readonly Pick<BundleEvent, 'seq'>[];
}

/**
 * The checkpoint of a bundle: the home that signed the bundle signed it too, for this session, and the events begin where
 * it says. Errors: `snapshot_damaged`.
 */
export function verifiedCheckpoint(
  text: string,
  { publicKey, home, session, events }: CheckpointContext,
): Checkpoint {
  const opened = openEnvelope(text, publicKey, CHECKPOINT_TYPE);
  if (!opened.valid) throw refusedBundle(`the checkpoint of its history is not valid: ${opened.why}`);
  const checkpoint = readCheckpoint(text);
  if (checkpoint?.session !== session || checkpoint.home !== home)
    throw refusedBundle('the checkpoint of its history is of another session');
  const kept = events.findIndex(({ seq }) => seq > checkpoint.seq);
  const rest = kept === -1 ? [] : events.slice(kept);
  const isWhole =
    (kept === -1 ? events.length : kept) === checkpoint.kept &&
    rest.every(({ seq }, at) => seq === checkpoint.seq + 1 + at);
  if (!isWhole) throw refusedBundle('its history does not begin where its checkpoint says');
  return checkpoint;
}
