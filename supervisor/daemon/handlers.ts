import type { ClientPeer, HandlerTable } from '../rpc/handler-table.ts';
import { randomIds } from '../base/ids.ts';
import { sessionHandlers } from '../rpc/handlers/session.ts';
import { agentSettingHandlers } from '../rpc/handlers/agent-settings.ts';
import { permissionHandlers } from '../rpc/handlers/permission.ts';
import { terminalHandlers } from '../rpc/handlers/terminal.ts';
import { hostHandlers } from '../rpc/handlers/host.ts';
import { filesHandlers } from '../rpc/handlers/files.ts';
import { withStorageLimits } from '../rpc/handlers/storage-limit.ts';
import { conversationHandlers } from '../rpc/handlers/conversation.ts';
import { searchHandlers } from '../rpc/handlers/search.ts';
import { watchHandlers } from '../rpc/handlers/watch.ts';
import { reviewHandlers } from '../rpc/handlers/review.ts';
import { bundleHandlers } from '../rpc/handlers/bundle.ts';
import { moveHandlers } from '../rpc/handlers/move.ts';
import { guardHeldSessions } from '../rpc/held-sessions.ts';
import { snapshotHandlers } from '../rpc/handlers/snapshot.ts';
import { checkHandlers } from '../rpc/handlers/check.ts';
import { artifactHandlers } from '../rpc/handlers/artifact.ts';
import { handoffHandlers } from '../rpc/handlers/handoff.ts';
import { manifestHandlers } from '../rpc/handlers/manifest.ts';
import { deployHandlers } from '../rpc/handlers/deploy.ts';
import { policyHandlers } from '../rpc/handlers/policy.ts';
import { setupHandlers } from '../rpc/handlers/setup.ts';
import { secretHandlers } from '../rpc/handlers/secret.ts';
import { childProblem } from '../egress/proxy-child.ts';
import { Doctor } from '../doctor/doctor.ts';
import { GarbageCollector } from './garbage.ts';
import type { Log } from '../base/log.ts';
import type { Program } from './program.ts';
import type { Services } from './composition.ts';
import { supervisorStatus } from './status.ts';

/** What methods may ask of the process that runs them. */
export interface ProcessControl {
  readonly startedAt: number;
  connections(): number;
  /** Shuts down this supervisor after the current response has been sent. */
  shutDownSoon(reason: 'stop' | 'handover'): void;
  purge: HandlerTable['purge'];
}

/** The handlers of all methods. */
export function createHandlers(
  services: Services,
  program: Program,
  control: ProcessControl,
  log: Log,
): HandlerTable {
  const { sessionService, profileService, engine } = services;
  const { filesConnections, watchConnections, policies, egress } = services;
  const { limits, terminals, snapshotService, maintenance } = services;
  const garbage = new GarbageCollector(services, log.child('gc'));
  const doctor = new Doctor({ ...services, program, damage: null, proxyChildProblem: childProblem });
  const sessionId = (reference: string): string => sessionService.find(reference).id;
  const table: HandlerTable = {
    ping: () => ({}),
    'supervisor/status': () =>
      supervisorStatus(services, program, {
        startedAt: control.startedAt,
        connections: control.connections(),
      }),
    'supervisor/stop': async ({ sandboxes }) => {
      const stopped = sandboxes === true ? await stopSandboxes() : 0;
      control.shutDownSoon('stop');
      return { stopped };
    },
    'supervisor/handover': () => {
      control.shutDownSoon('handover');
      return { leaving: true };
    },
    'supervisor/doctor': async () => ({ checks: await doctor.run() }),
    gc: async ({ dryRun = false }) => ({ ...(await garbage.collect(dryRun)), dryRun }),
    purge: control.purge,

    ...hostHandlers<ClientPeer>(services.hostFeed, (error) =>
      log.error('the feed of the host could not be read', { error }),
    ),
    ...deployHandlers<ClientPeer>({ profiles: profileService, onDeployed: () => egress.applyRules() }),
    'profile/undeploy': ({ profile, force, opId }) => profileService.undeploy(profile, { force, opId }),
    'profile/list': () => ({ profiles: profileService.list() }),

    ...policyHandlers<ClientPeer>({ policies, egress, sessionId }),
    ...secretHandlers<ClientPeer>(services.secrets),
    ...setupHandlers<ClientPeer>(services),
    ...withStorageLimits(
      filesHandlers<ClientPeer>({
        connections: filesConnections,
        writeLock: services.writeLock,
        sessionId,
        withSnapshotFiles: (snapshot, session, act) =>
          maintenance.withFiles(snapshotService.find(snapshot, session), act),
      }),
      limits,
      sessionId,
    ),
    ...watchHandlers<ClientPeer>({ connections: watchConnections, sessionId, ids: randomIds }),
    ...searchHandlers<ClientPeer>({ connections: watchConnections, sessionId }),
    ...snapshotHandlers<ClientPeer>({ ...services, sessions: sessionService, service: snapshotService }),
    ...bundleHandlers<ClientPeer>({ ...services, sessions: sessionService, snapshots: snapshotService }),
    ...moveHandlers<ClientPeer>({ ...services, homeId: services.home.id }),
    ...conversationHandlers<ClientPeer>({
      ...services,
      reader: services.conversationReader,
      live: services.conversationLive,
      search: services.conversationSearch,
      memory: services.sessionMemory,
      requestMemory: (session, request, signal) =>
        services.memoryRequests.ask(sessionService.find(session), request, signal),
      sessionId,
    }),
    ...reviewHandlers<ClientPeer>({
      ...services,
      findSession: (reference) => sessionService.find(reference),
    }),
    ...permissionHandlers<ClientPeer>({ ...services, sessionId }),
    ...agentSettingHandlers<ClientPeer>({ ...services, sessionId }),
    ...handoffHandlers<ClientPeer>(services),
    ...artifactHandlers<ClientPeer>(services),
    ...manifestHandlers<ClientPeer>({
      ...services,
      findSession: (reference) => sessionService.find(reference),
    }),
    ...checkHandlers<ClientPeer>({
      ...services,
      findSession: (reference) => sessionService.find(reference),
    }),
    ...terminalHandlers<ClientPeer>({ terminals, sessionId }),
    ...sessionHandlers<ClientPeer>({
      ...services,
      service: sessionService,
    }),
  };
  return guardHeldSessions(table, {
    gate: services.gate,
    find: (reference) => services.sessions.find(reference),
  });

  async function stopSandboxes(): Promise<number> {
    const stopped = await sessionService.stopAll();
    // A workspace that is being hydrated would start its sidecar again.
    const resume = await services.sessionRuntime.pauseHydration();
    try {
      await removeSidecars(services);
    } catch (error) {
      resume();
      throw error;
    }
    return stopped;
  }

  async function removeSidecars({ engine: on }: Pick<Services, 'engine'>): Promise<void> {
    if (!engine.status().reachable) return;
    const left = (await on.observe()).filter(({ kind }) => kind === 'container');
    const sessions = new Set(left.flatMap(({ sessionId }) => (sessionId === null ? [] : [sessionId])));
    await Promise.all([...sessions].map((sessionId) => on.removeSandbox(sessionId, 0)));
  }
}
