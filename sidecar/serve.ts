import type { Duplex } from 'node:stream';
import { HoldfastError } from '../protocol/errors.ts';
import type { BufferPool } from '../protocol/wire/buffer-pool.ts';
import { Peer } from '../protocol/wire/peer.ts';
import { STORE_CALLS } from '../snapshot-format/sidecar-calls.ts';
import { EMPTY_MAP, type HandlerContext, withBytes } from '../protocol/wire/shapes.ts';
import { type AcceptingPeer, acceptConnection } from './egress/accept.ts';
import type { EgressListener } from './egress/listener.ts';
import type { EgressListeners } from './egress/listeners.ts';
import { Directory } from './files/directory.ts';
import { filesHandlers } from './files/handlers.ts';
import { restoreWorkspaceAccess } from './files/workspace-access.ts';
import type { WorkspaceFiles } from './files/workspace-files.ts';
import { processHandlers } from './processes/handlers.ts';
import type { Processes } from './processes/processes.ts';
import { searchHandlers } from './search/searches.ts';
import { fillHome } from './home/fill.ts';
import { clearHome, openOwned, prepareHome } from './home/prepare.ts';
import { snapshotHandlers } from './snapshots/handlers.ts';
import type { SnapshotThread } from './snapshots/thread-client.ts';
import { terminalHandlers } from './terminals/handlers.ts';
import type { Terminals } from './terminals/terminals.ts';
import type { AttachedFiles } from './turns/attached-files.ts';
import type { Turns } from './turns/keeper.ts';
import { watchHandlers } from './watch/handlers.ts';
import type { WatchedTrees } from './watch/watches.ts';
import { writeManifestCopy } from './network/manifest-copy.ts';
import { listOpenPorts } from './network/open-ports.ts';
import { MANIFEST_COPY_BYTES, SIDECAR_METHODS, SIDECAR_PROTOCOL } from './wire.ts';
import { clearWorkspace } from './workspace/clear.ts';
import { readWorkspaceFile } from './workspace/read.ts';
import { seedWorkspace } from './workspace/seed.ts';
import { type Usage, usageOf } from './workspace/usage.ts';

export interface ServeOptions {
  readonly session: string;
  readonly turns: Turns;
  readonly attachedFiles: AttachedFiles;
  readonly terminals: Terminals;
  readonly processes: Processes;
  readonly workspace: string;
  /** The agent's HOME. */
  readonly home: string;
  /** The run directory. */
  readonly run: string;
  readonly files: WorkspaceFiles;
  readonly trees: WatchedTrees;
  /** Path of the ripgrep program. */
  readonly ripgrep: string;
  readonly egress: EgressListeners;
  readonly payloads: BufferPool;
  readonly snapshots: SnapshotThread;
}

/** Serves one connection of the supervisor until it closes. */
export function serveConnection(
  stream: Duplex,
  {
    session,
    turns,
    attachedFiles,
    terminals,
    processes,
    workspace,
    home,
    run,
    files,
    trees,
    ripgrep,
    egress,
    payloads,
    snapshots,
  }: ServeOptions,
): Peer<typeof SIDECAR_METHODS, typeof STORE_CALLS> {
  const { promise: closed, resolve: close } = Promise.withResolvers<undefined>();
  stream.once('close', () => close(undefined));
  const accepts = new Set<EgressListener>();
  const acceptFrom = (
    listener: EgressListener,
    { peer, signal, progress }: HandlerContext<AcceptingPeer>,
  ): Promise<{ waiting: number }> => {
    if (!accepts.has(listener)) listener.lease(closed);
    accepts.add(listener);
    return acceptConnection(listener, peer, signal, {
      listening: () => progress('listening'),
      refused: (count) => progress('refused', count, undefined, 'connections'),
    });
  };
  return new Peer({
    stream,
    name: 'the supervisor',
    serves: SIDECAR_METHODS,
    calls: STORE_CALLS,
    sends: EMPTY_MAP,
    receives: EMPTY_MAP,
    bufferPool: payloads,
    handshake: { method: 'hello', allowedBefore: [] },
    onInternalError: (error, { method }) => console.error(`${method}:`, error),
    handlers: {
      hello: (params) => {
        if (params.protocol !== SIDECAR_PROTOCOL) {
          throw new HoldfastError('version_mismatch', 'The sidecar has another protocol version', {
            why: `it speaks version ${SIDECAR_PROTOCOL}, not ${params.protocol}`,
          });
        }
        if (params.session !== session) {
          throw new HoldfastError('conflict', `This sidecar does not belong to ${params.session}`);
        }
        return { protocol: SIDECAR_PROTOCOL, session, build: __BUILD_ID__, watch: turns.watchMode };
      },
      'agent/ready': async ({ timeoutMs }, { signal }) => ({
        ready: await turns.waitUntilAgentReady(timeoutMs, signal),
      }),
      'agent/sweep': async ({ timeoutMs }, { signal }) => {
        const left = await turns.sweep(timeoutMs, signal);
        await processes.endLost();
        return { left };
      },
      'turn/launch': (launch, { bytes }) => {
        restoreWorkspaceAccess(workspace);
        return turns.launch(launch, bytes);
      },
      'turn/progress': (params, { signal }) => turns.progress(params, signal),
      'turn/read': ({ turnId, stream: name, offset, limit }) => {
        const { bytes, total } = turns.read(turnId, name, offset, limit);
        return withBytes({ offset, total }, bytes);
      },
      'turn/kill': async ({ turnId, graceMs }, { signal }) => {
        await turns.kill(turnId, graceMs, signal);
        return {};
      },
      'turn/remove': ({ turnId }) => {
        turns.remove(turnId);
        return {};
      },
      'turn/list': () => ({ turns: turns.list() }),
      'attachment/write': (part, { bytes }) => ({ stored: attachedFiles.write(part, bytes) }),
      'exec/kill': async ({ exec, signal: name }, { signal }) => {
        await turns.killExec(exec, name, signal);
        return {};
      },
      ...terminalHandlers(terminals, workspace),
      ...processHandlers(processes, workspace),
      'workspace/usage': async (_params, { signal, progress }) => {
        restoreWorkspaceAccess(workspace);
        using root = Directory.name(workspace);
        const onProgress = ({ files: counted }: Usage): void =>
          progress('counting', counted, undefined, 'files');
        return await usageOf(root, { signal, onProgress });
      },
      'workspace/clear': async (_params, { signal, progress }) =>
        clearWorkspace(workspace, {
          temporaryEntries: files.temporaryEntries,
          signal,
          onProgress: ({ files }) => progress('removing', files, undefined, 'files'),
        }),
      'home/prepare': async ({ kept }, { signal, progress }) =>
        prepareHome(home, kept, {
          signal,
          onProgress: ({ files }) => progress('emptying HOME', files, undefined, 'files'),
        }),
      'home/fill': ({ files: wanted }, { bytes }) => fillHome(home, wanted, bytes),
      'home/clear': async (_params, { signal, progress }) =>
        clearHome(home, {
          signal,
          onProgress: ({ files }) => progress('emptying HOME', files, undefined, 'files'),
        }),
      'network/ports': () => listOpenPorts(),
      'run/manifest': (_params, { bytes }) => {
        if (bytes.length > MANIFEST_COPY_BYTES)
          throw new HoldfastError('invalid_params', 'The copy of the manifest is too large');
        writeManifestCopy(run, bytes);
        return {};
      },
      'run/usage': async (_params, { signal }) => {
        using root = openOwned(run);
        return await usageOf(root, { signal });
      },
      'home/usage': async (_params, { signal }) => {
        using root = openOwned(home);
        return await usageOf(root, { signal });
      },
      ...filesHandlers(files, payloads, closed),
      ...watchHandlers(trees, closed),
      ...searchHandlers(files, ripgrep, closed),
      ...snapshotHandlers(snapshots),
      'egress/accept': (target, context) => acceptFrom(egress.forTarget(target), context),
      'tools/accept': (_params, context) => acceptFrom(egress.tools, context),
      'files/seed': ({ entries }, { bytes, signal }) => seedWorkspace(files, entries, bytes, signal),
      'workspace/read': ({ path }) => {
        restoreWorkspaceAccess(workspace);
        const bytes = readWorkspaceFile(workspace, path);
        return withBytes({ size: bytes.length }, bytes);
      },
    },
  });
}
