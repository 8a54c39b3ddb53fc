import type { MOVE_METHODS } from '../../../protocol/moves.ts';
import type { Handlers } from '../../../protocol/wire/shapes.ts';
import type { Bundles } from '../../bundles/bundles.ts';
import type { HostKey } from '../../manifests/host-key.ts';
import type { Arrivals } from '../../moves/arrivals.ts';
import type { Departures } from '../../moves/departures.ts';

export interface MoveHandlersOptions {
  readonly homeId: string;
  readonly hostKey: () => HostKey;
  readonly departures: Departures;
  readonly arrivals: Arrivals;
  readonly bundles: Pick<Bundles, 'leave'>;
}

/** The answers to `move/*`. */
export function moveHandlers<P extends { readonly closed: Promise<unknown> }>({
  homeId,
  hostKey,
  departures,
  arrivals,
  bundles,
}: MoveHandlersOptions): Handlers<typeof MOVE_METHODS, P> {
  const leaveWith = (peer: P, bundle: string): void => {
    void peer.closed.then(() => bundles.leave(bundle, peer));
  };
  return {
    'move/identity': () => {
      const { publicKey, keyId } = hostKey();
      return { home: homeId, publicKey, keyId };
    },
    'move/begin': ({ session, to }) => departures.begin(session, to),
    'move/export': async ({ move }, { peer }) => {
      const bundle = await departures.export(move, peer);
      leaveWith(peer, bundle);
      return { bundle };
    },
    'move/status': (params) => arrivals.status(params),
    'move/import': async (params, { peer }) => {
      const bundle = await arrivals.begin(params, peer);
      leaveWith(peer, bundle);
      return { bundle };
    },
    'move/release': ({ move, acceptance }) => departures.release(move, acceptance),
    'move/activate': ({ move, receipt }) => arrivals.activate(move, receipt),
    'move/finish': ({ move, activation }) => departures.finish(move, activation),
    'move/abort': ({ session }) => departures.abort(session),
    'move/discard': async ({ move, withdrawal }) => ({ discarded: await arrivals.discard(move, withdrawal) }),
  };
}
