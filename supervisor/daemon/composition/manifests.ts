import { setTimeout } from 'node:timers/promises';
import type { Log } from '../../base/log.ts';
import { changedPaths } from '../../handoff/changed-files.ts';
import { AutomaticManifests } from '../../manifests/automatic-manifests.ts';
import { Manifests } from '../../manifests/manifests.ts';
import { KeptManifestRows } from '../../store/kept-manifests.ts';
import { SetupRows } from '../../store/setups.ts';
import type { SidecarClient } from '../../workspace/sidecar-client.ts';
import type { StorageLayer } from './storage.ts';
import type { SandboxLayer } from './sandboxes.ts';
import type { SnapshotLayer } from './snapshots.ts';
import type { SessionLayer } from './sessions.ts';

/** How long a manifest waits for what a running sandbox says of itself. */
const SANDBOX_FACTS_MS = 2000;

/** Null if no sandbox of the session runs, or it does not do that soon. Never starts one, and never rejects. */
async function withRunningSandbox<T>(
  { sidecars, records }: Pick<SandboxLayer, 'sidecars'> & Pick<StorageLayer, 'records'>,
  sessionId: string,
  act: (sidecar: SidecarClient) => Promise<T>,
): Promise<T | null> {
  const status = records.peek(sessionId)?.status;
  if (status !== 'active' && status !== 'idle') return null;
  const slow = setTimeout(SANDBOX_FACTS_MS, null, { ref: false });
  const answer = sidecars
    .get(sessionId)
    .then(act)
    .catch(() => null);
  return await Promise.race([answer, slow]);
}

/** Statements of what sessions did. */
export function createManifests(below: StorageLayer & SandboxLayer & SnapshotLayer & SessionLayer, log: Log) {
  const { database, sessionMemory, baseTrees, stores, removal } = below;
  const kept = new KeptManifestRows(database);
  const setups = new SetupRows(database);
  const manifests = new Manifests({
    ...below,
    kept,
    memoryVersion: (sessionId) => sessionMemory.show(sessionId)?.version ?? 0,
    baseOf: (session) => baseTrees.find(session),
    setupOf: (profile, image) => {
      const setup = setups.list(profile).find((one) => one.image === image);
      return setup === undefined ? null : { key: setup.key, imageId: setup.imageId };
    },
    changesBetween: ({ lineage }, before, after) => changedPaths(stores, lineage, { before, after }),
    openPorts: ({ id }) =>
      withRunningSandbox(below, id, (sidecar) => sidecar.openPorts({ timeoutMs: SANDBOX_FACTS_MS })),
    writeAgentCopy: async ({ id }, copy) => {
      const options = { timeoutMs: SANDBOX_FACTS_MS };
      await withRunningSandbox(below, id, (sidecar) => sidecar.writeManifestCopy(copy, options));
    },
    log: log.child('manifests'),
  });
  removal.sessionDeleted.on(({ id }) => kept.removeOfSession(id));
  const automaticManifests = new AutomaticManifests({ ...below, manifests, log: log.child('manifests') });
  return { manifests, automaticManifests };
}
