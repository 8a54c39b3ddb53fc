import { join } from 'node:path';
import type { Log } from '../../base/log.ts';
import { SessionCredentials } from '../../egress/credentials/session-credentials.ts';
import { Egress } from '../../egress/egress.ts';
import { Policies } from '../../egress/policies.ts';
import { proxyLauncher } from '../../egress/proxy-launcher.ts';
import { ProxyProcess } from '../../egress/proxy-process.ts';
import { nameResolver } from '../../egress/resolver.ts';
import { sandboxOwner } from '../../engine/sandbox-owner.ts';
import { SetupTemplates } from '../../snapshots/setup-templates.ts';
import { EgressRules } from '../../store/egress-rules.ts';
import { SetupRows } from '../../store/setups.ts';
import { packageSources } from '../../setup/package-sources.ts';
import { Setups } from '../../setup/setups.ts';
import { SidecarClient } from '../../workspace/sidecar-client.ts';
import { KeyedMutex } from '../../base/keyed-mutex.ts';
import { ProfileSetups } from '../../profiles/profile-setups.ts';
import type { FillWorkspace } from '../../profiles/setup-seed.ts';
import { seedWorkspace } from '../../workspace/seeding.ts';
import type { Program } from '../program.ts';
import type { StorageLayer } from './storage.ts';

/** How long the first sandbox of a prepared image may take until it accepts requests. */
const SETUP_READY_MS = 30_000;

/** What sandboxes may reach, and the images that are prepared for them. */
export function createNetwork(storage: StorageLayer, program: Program, log: Log) {
  const { database, engine } = storage;
  const credentials = new SessionCredentials(storage);
  const egressRules = new EgressRules(database);
  const policies = new Policies({ ...storage, rules: egressRules });
  const egressProxy = new ProxyProcess({
    launch: proxyLauncher({
      startContainer: () => engine.startEgressProxy(),
      program: join(program.builtPrograms, 'egress-proxy.cjs'),
      log: log.child('egress'),
    }),
    log: log.child('egress'),
  });
  const egress = new Egress({
    ...storage,
    policies,
    proxy: egressProxy,
    credentials,
    dial: (sessionId) => engine.dial(sessionId),
    resolve: nameResolver(process.env),
    log: log.child('egress'),
  });
  const setupRows = new SetupRows(database);
  const setupTemplates = new SetupTemplates({ ...storage, rows: setupRows, dial: (id) => engine.dial(id) });
  const setups = new Setups({
    ...storage,
    ...{ policies, egress },
    rows: setupRows,
    templates: setupTemplates,
    sources: () => packageSources(process.env),
    connect: (id) => SidecarClient.connect(() => engine.dial(id), id),
    owner: () => sandboxOwner(engine, () => storage.sessions.allocateUid()),
    takesRequests: async (id, signal) => {
      const client = await SidecarClient.connect(() => engine.dial(id), id);
      const close = (): void => client.close();
      signal.addEventListener('abort', close, { once: true });
      try {
        signal.throwIfAborted();
        return await client.agentReady(SETUP_READY_MS);
      } finally {
        signal.removeEventListener('abort', close);
        client.close();
      }
    },
    log: log.child('setup'),
  });
  egress.decidedElsewhere.on(({ id, entries }) => setups.reportEgress(id, entries));
  /** What deploys, undeploys and setups of profiles share. */
  const ofProfiles = {
    mutex: new KeyedMutex(),
    defaultImage: program.agentImage,
    fillWorkspace: ((sandboxId, items) =>
      seedWorkspace((id) => engine.dial(id), sandboxId, items)) satisfies FillWorkspace,
  };
  const profileSetups = new ProfileSetups({ ...storage, ...ofProfiles, setups });
  return {
    policies,
    egress,
    egressProxy,
    egressRules,
    setups,
    setupRows,
    setupTemplates,
    ofProfiles,
    profileSetups,
  };
}

export type NetworkLayer = ReturnType<typeof createNetwork>;
