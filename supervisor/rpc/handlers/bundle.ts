import type { BUNDLE_METHODS } from '../../../protocol/bundles.ts';
import type { Snapshot } from '../../../protocol/snapshots.ts';
import { type Handlers, withBytes } from '../../../protocol/wire/shapes.ts';
import type { Bundles } from '../../bundles/bundles.ts';
import type { SessionService } from '../../sessions/session-service.ts';
import type { SnapshotService } from '../../snapshots/snapshot-service.ts';

export interface BundleHandlersOptions {
  readonly bundles: Bundles;
  readonly sessions: Pick<SessionService, 'view' | 'find'>;
  readonly snapshots: Pick<SnapshotService, 'view' | 'find'>;
}

/** The answers to `bundle/*`. A bundle belongs to the connection that began it. */
export function bundleHandlers<P extends { readonly closed: Promise<unknown> }>({
  bundles,
  sessions,
  snapshots,
}: BundleHandlersOptions): Handlers<typeof BUNDLE_METHODS, P> {
  const endWith = (peer: P, bundle: string): void => {
    // What cannot be removed now is garbage for the next supervisor.
    void peer.closed.then(() => bundles.abort(bundle, peer)).catch(() => undefined);
  };
  const snapshotOf = (id: string): Snapshot => snapshots.view(snapshots.find(id));
  return {
    'bundle/export': async (params, { peer }) => {
      const { bundle, snapshot, keyId } =
        'snapshot' in params
          ? await bundles.exportSnapshot(params.snapshot, peer)
          : await bundles.exportSession(params.session, params.opId, peer);
      endWith(peer, bundle);
      return { bundle, snapshot: snapshots.view(snapshot), keyId };
    },
    'bundle/read': async ({ bundle }, { peer }) => {
      const { bytes, end } = await bundles.read(bundle, peer);
      return withBytes({ end }, bytes);
    },
    'bundle/import': async (params, { peer }) => {
      const bundle = await bundles.beginImport(params, peer);
      endWith(peer, bundle);
      return { bundle };
    },
    'bundle/append': async ({ bundle }, { peer, bytes }) => {
      await bundles.append(bundle, peer, bytes);
      return {};
    },
    'bundle/commit': async ({ bundle, opId }, { peer }) => {
      const { sessionId, snapshotId, ...facts } = await bundles.commit(bundle, peer, opId);
      return { session: sessions.view(sessions.find(sessionId)), snapshot: snapshotOf(snapshotId), ...facts };
    },
    'bundle/resume': async ({ bundle }, { peer }) => {
      const offset = await bundles.resume(bundle, peer);
      void peer.closed.then(() => bundles.leave(bundle, peer));
      return { offset };
    },
    'bundle/abort': async ({ bundle }, { peer }) => {
      await bundles.abort(bundle, peer);
      return {};
    },
  };
}
