import { chmodSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { ProxyServer } from './proxy-server.ts';
import { IN_PROXY } from './wire.ts';

/**
 * The process that reads what sandboxes send: HOLDFAST_CONTROL is the folder of its socket. It ends with its stdin, which
 * the supervisor holds, so that none is left over.
 */
const path = `${process.env['HOLDFAST_CONTROL'] ?? IN_PROXY.control}/${IN_PROXY.socketName}`;
const proxy = new ProxyServer();
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
const end = (): never => process.exit(0);
process.stdin.on('end', end);
process.stdin.on('close', end);
process.stdin.on('error', end);
process.stdin.resume();
process.on('SIGTERM', end);
