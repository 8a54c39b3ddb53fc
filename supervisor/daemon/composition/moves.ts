import type { Log } from '../../base/log.ts';
import { BundleExports } from '../../bundles/bundle-exports.ts';
import { BundleImports } from '../../bundles/bundle-imports.ts';
import { Bundles } from '../../bundles/bundles.ts';
import { SessionImport } from '../../bundles/session-import.ts';
import { Arrivals } from '../../moves/arrivals.ts';
import { Departures } from '../../moves/departures.ts';
import { type HostKey, openHostKey } from '../../manifests/host-key.ts';
import type { StorageLayer } from './storage.ts';
import type { SandboxLayer } from './sandboxes.ts';
import type { SnapshotLayer } from './snapshots.ts';
import type { AgentLayer } from './agents.ts';
import type { SessionLayer } from './sessions.ts';

/** Sessions as files, on their way to another home. */
export function createBundles(below: StorageLayer & SandboxLayer & SnapshotLayer & SessionLayer) {
  const { idleTimer } = below;
  const bundleImports = new BundleImports({ ...below, sessionImport: new SessionImport(below) });
  const bundles = new Bundles({
    ...below,
    exports: new BundleExports(below),
    imports: bundleImports,
    onImported: (sessionId) => idleTimer.reschedule(sessionId),
  });
  return { bundles, bundleImports };
}

/** Sessions on their way from and to other homes. */
export function createMoves(
  below: StorageLayer &
    SandboxLayer &
    SnapshotLayer &
    AgentLayer &
    SessionLayer &
    ReturnType<typeof createBundles>,
  log: Log,
) {
  const { home, moveRows: rows, sessionService, idleTimer, removal } = below;
  let opened: HostKey | null = null;
  const hostKey = (): HostKey => (opened ??= openHostKey(home.hostKey));
  const own = { ...below, rows, key: hostKey, log: log.child('moves') };
  const departures = new Departures(own);
  const arrivals = new Arrivals({
    ...own,
    view: (row) => sessionService.view(row),
    onActive: (sessionId) => idleTimer.reschedule(sessionId),
  });
  removal.sessionDeleted.on(({ id }) => {
    departures.handleDeleted(id);
    arrivals.handleDeleted(id);
  });
  return { departures, arrivals, hostKey };
}
