import { HoldfastError } from '../../protocol/errors.ts';
import type { SNAPSHOT_METHODS } from '../../protocol/snapshots.ts';
import type { Handlers } from '../../protocol/wire/shapes.ts';

/** The answers to `snapshot/*`. */
export function snapshotHandlers<P>(): Handlers<typeof SNAPSHOT_METHODS, P> {
  const later = (): never => {
    throw new HoldfastError('not_supported', 'This version has no snapshots');
  };
  return {
    'snapshot/create': later,
    'snapshot/list': later,
    'snapshot/show': later,
    'snapshot/update': later,
    'snapshot/verify': later,
    'snapshot/delete': later,
    'snapshot/diff': later,
    'snapshot/patch': later,
    'snapshot/preview': later,
    'snapshot/restore': later,
    'snapshot/fork': later,
  };
}
