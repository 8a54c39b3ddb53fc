import { chmodSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';

/**
 * Entry point of the sidecar. `sidecar.cjs` serves the supervisor on a socket in /ctl; `sidecar.cjs relay` connects its
 * own stdio to that socket. These environment variables override its paths: HOLDFAST_CONTROL, _RUN, _WORKSPACE,
 * _AGENT_HOME, _RUNTIME, _AGENT, and _RIPGREP (a program). HOLDFAST_WITHOUT_AGENT says that no agent container starts beside this
 * sidecar.
 */
const started = performance.now();
/** By then the startup of a session is over, and the snapshot thread can start without delaying it. */
const STARTUP_MS = 1000;

function pathOf(name: string, usual: string): string {
  return process.env[`HOLDFAST_${name}`] ?? usual;
}

function fail(error: unknown): never {
  console.error(error);
  process.exit(1);
}

function listen(): void {
  const path = `${pathOf('CONTROL', '/ctl')}/sidecar.sock`;
  const session = process.env['HOLDFAST_SESSION'] ?? '';
  const ending = new AbortController();
  const sockets = new Set<Socket>();
  // The socket listens before the modules load, because loading takes longer than connecting.
  const server = createServer({ pauseOnConnect: true }, (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
    loaded.then((serveSocket) => serveSocket(socket), fail);
  });
  rmSync(path, { force: true });
  process.umask(0o077);
  server.listen(path, () => {
    chmodSync(path, 0o600);
    if (process.env['HOLDFAST_TRACE'] !== undefined)
      console.error(`listening after ${performance.now() - started} ms`);
  });
  server.on('error', fail);

  const listening = new Promise<void>((resolve) => server.once('listening', () => setImmediate(resolve)));
  const thread = listening
    .then(() => import('./snapshots/thread-client.ts'))
    .then(({ SnapshotThread }) => {
      const snapshots = new SnapshotThread(join(import.meta.dirname, 'snapshots.cjs'), {
        workspace: pathOf('WORKSPACE', '/workspace'),
        home: pathOf('AGENT_HOME', '/home/agent'),
        control: pathOf('CONTROL', '/ctl'),
      });
      // Without an agent the first request may be a snapshot, so the thread starts while the other modules load.
      if (process.env['HOLDFAST_WITHOUT_AGENT'] !== undefined) snapshots.start();
      return snapshots;
    });
  const loaded = listening
    .then(() =>
      Promise.all([
        thread,
        import('./serve.ts'),
        import('./turns/keeper.ts'),
        import('./turns/attached-files.ts'),
        import('./files/workspace-files.ts'),
        import('./watch/watches.ts'),
        import('./egress/listeners.ts'),
        import('../protocol/wire/buffer-pool.ts'),
        import('../protocol/wire/read-buffer.ts'),
        import('./terminals/terminals.ts'),
        import('./processes/processes.ts'),
      ]),
    )
    .then(
      ([
        snapshots,
        { serveConnection },
        { Turns },
        { AttachedFiles },
        { WorkspaceFiles },
        { WatchedTrees },
        { EgressListeners },
        { BufferPool },
        { acceptWithReadBuffer },
        { Terminals },
        { Processes },
      ]) => {
        const turns = new Turns({
          run: pathOf('RUN', '/run/holdfast'),
          runtime: pathOf('RUNTIME', '/opt/holdfast'),
          code: pathOf('AGENT', '/agent'),
        });
        const attachedFiles = new AttachedFiles(pathOf('RUN', '/run/holdfast'));
        const terminals = new Terminals({
          run: pathOf('RUN', '/run/holdfast'),
          control: pathOf('CONTROL', '/ctl'),
        });
        const processes = new Processes({
          run: pathOf('RUN', '/run/holdfast'),
          control: pathOf('CONTROL', '/ctl'),
        });
        const workspace = pathOf('WORKSPACE', '/workspace');
        const files = new WorkspaceFiles({
          workspace,
          control: pathOf('CONTROL', '/ctl'),
          withoutNative: process.env['HOLDFAST_WITHOUT_NATIVE'] !== undefined,
        });
        files.recover().catch((error: unknown) => console.error('files:', error));
        const trees = new WatchedTrees(files);
        const egress = new EgressListeners();
        const startThread = setTimeout(() => snapshots.start(), STARTUP_MS);
        const payloads = new BufferPool();
        const ripgrep = process.env['HOLDFAST_RIPGREP'] ?? '/usr/bin/rg';
        ending.signal.addEventListener('abort', () => {
          clearTimeout(startThread);
          turns.close();
          attachedFiles.close();
          terminals.detach();
          processes.detach();
        });
        return (socket: Socket): void => {
          if (socket.destroyed) return;
          serveConnection(acceptWithReadBuffer(socket), {
            session,
            turns,
            attachedFiles,
            terminals,
            processes,
            workspace,
            home: pathOf('AGENT_HOME', '/home/agent'),
            run: pathOf('RUN', '/run/holdfast'),
            files,
            trees,
            ripgrep,
            egress,
            payloads,
            snapshots,
          });
        };
      },
    );
  loaded.catch(fail);

  const end = (): void => {
    ending.abort();
    server.close();
    for (const socket of sockets) socket.destroy();
    process.exit(0);
  };
  process.on('SIGTERM', end);
  process.on('SIGINT', end);
}

if (process.argv[2] === 'relay') import('./relay.ts').catch(fail);
else listen();
