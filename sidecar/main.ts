import { chmodSync, rmSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';

/**
 * The sidecar: `sidecar.cjs` serves the supervisor on a socket in /ctl, `sidecar.cjs relay` joins its own stdio to that socket.
 * The environment may put its folders elsewhere: HOLDFAST_CONTROL, _RUN, _WORKSPACE, _RUNTIME, _AGENT, and _RIPGREP (a program).
 * HOLDFAST_WITHOUT_AGENT: no agent starts beside it now.
 */
const started = performance.now();
/** After this whatever a session starts with has happened. */
const QUIET_MS = 1000;

function placeOf(name: string, usual: string): string {
  return process.env[`HOLDFAST_${name}`] ?? usual;
}

function fail(error: unknown): never {
  console.error(error);
  process.exit(1);
}

function listen(): void {
  const path = `${placeOf('CONTROL', '/ctl')}/sidecar.sock`;
  const session = process.env['HOLDFAST_SESSION'] ?? '';
  const ending = new AbortController();
  const sockets = new Set<Socket>();
  // Listening comes first: what a connection needs takes longer to load than to dial.
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
        workspace: placeOf('WORKSPACE', '/workspace'),
        control: placeOf('CONTROL', '/ctl'),
      });
      // Whoever wants no agent may well want a snapshot: it starts while the rest is loaded.
      if (process.env['HOLDFAST_WITHOUT_AGENT'] !== undefined) snapshots.start();
      return snapshots;
    });
  const loaded = listening
    .then(() =>
      Promise.all([
        thread,
        import('./serve.ts'),
        import('./turns/keeper.ts'),
        import('./files/workspace-files.ts'),
        import('./watch/watches.ts'),
        import('./egress/listeners.ts'),
        import('../protocol/wire/buffer-pool.ts'),
        import('../protocol/wire/shared-buffer-socket.ts'),
        import('./terminals/terminals.ts'),
      ]),
    )
    .then(
      ([
        snapshots,
        { serveConnection },
        { Keeper },
        { WorkspaceFiles },
        { WatchedTrees },
        { EgressListeners },
        { BufferPool },
        { acceptWithSharedBuffer },
        { Terminals },
      ]) => {
        const keeper = new Keeper({
          run: placeOf('RUN', '/run/holdfast'),
          runtime: placeOf('RUNTIME', '/opt/holdfast'),
          code: placeOf('AGENT', '/agent'),
        });
        const terminals = new Terminals({
          run: placeOf('RUN', '/run/holdfast'),
          control: placeOf('CONTROL', '/ctl'),
        });
        const workspace = placeOf('WORKSPACE', '/workspace');
        const files = new WorkspaceFiles({
          workspace,
          control: placeOf('CONTROL', '/ctl'),
          withoutNative: process.env['HOLDFAST_WITHOUT_NATIVE'] !== undefined,
        });
        files.recover().catch((error: unknown) => console.error('files:', error));
        const trees = new WatchedTrees(files);
        const egress = new EgressListeners();
        const warming = setTimeout(() => snapshots.start(), QUIET_MS);
        const payloads = new BufferPool();
        const ripgrep = process.env['HOLDFAST_RIPGREP'] ?? '/usr/bin/rg';
        ending.signal.addEventListener('abort', () => {
          clearTimeout(warming);
          keeper.close();
          terminals.detach();
        });
        return (socket: Socket): void => {
          if (socket.destroyed) return;
          serveConnection(acceptWithSharedBuffer(socket), {
            session,
            keeper,
            terminals,
            workspace,
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
