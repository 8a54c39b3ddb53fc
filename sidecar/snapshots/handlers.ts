import { HoldfastError } from '../../protocol/errors.ts';
import type { SNAPSHOT_CALLS, STORE_CALLS } from '../../protocol/snapshots/wire.ts';
import type { Peer } from '../../protocol/wire/peer.ts';
import type { Handlers, MethodMap } from '../../protocol/wire/shapes.ts';

type Supervisor = Pick<Peer<MethodMap, typeof STORE_CALLS>, 'call' | 'callWithBytes'>;

function notYet(): never {
  throw new HoldfastError('not_supported', 'This build cannot take snapshots');
}

export function snapshotHandlers(): Handlers<typeof SNAPSHOT_CALLS, Supervisor> {
  return { 'snapshot/scan': notYet, 'snapshot/unchanged': notYet, 'snapshot/restore': notYet };
}
