import { chmodSync, rmSync } from 'node:fs';
import { createServer, Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { Multiplexer } from '../protocol/wire/multiplexer.ts';
import { ProxyServer } from './proxy-server.ts';
import { IN_PROXY } from './wire.ts';

/**
 * The process that reads what sandboxes send. It listens in the folder HOLDFAST_CONTROL; without one, its input and output
 * carry all connections. It ends with its input, which the supervisor holds, so that none is left over.
 */
const proxy = new ProxyServer();
const end = (): never => process.exit(0);
process.on('SIGTERM', end);

const folder = process.env['HOLDFAST_CONTROL'];
if (folder === undefined) serveCarrier();
else listen(`${folder}/${IN_PROXY.socketName}`);

function listen(path: string): void {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    socket.on('error', () => socket.destroy());
    proxy.accept(socket);
  });
  rmSync(path, { force: true });
  server.on('error', (error) => {
    console.error(error.message);
    process.exit(1);
  });
  server.listen(path, 1024, () => {
    // The supervisor may have another uid; who reaches it is decided by the folder above, which is the supervisor's alone.
    chmodSync(path, 0o666);
    process.stdout.write('listening\n');
  });
  process.stdin.on('end', end);
  process.stdin.on('close', end);
  process.stdin.on('error', end);
  process.stdin.resume();
}

function serveCarrier(): void {
  // `pipe` reads process.stdout, and to create that one fails while the carrier waits to write. What is logged is no frame.
  Object.defineProperty(process, 'stdout', { get: () => process.stderr });
  // Node's own stdout writes to a pipe synchronously: a full one would stop the process.
  const readable = new Socket({ fd: 0, readable: true, writable: false });
  const writable = new Socket({ fd: 1, readable: false, writable: true });
  const carrier = Duplex.from({ readable, writable });
  carrier.once('close', end);
  new Multiplexer({ carrier, onStream: (stream) => proxy.accept(stream) });
}
