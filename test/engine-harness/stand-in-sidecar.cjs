// A stand-in for the sidecar's program: listens where it would, and answers each line with the same line.
const fs = require('node:fs');
const net = require('node:net');
const path = '/ctl/sidecar.sock';
fs.rmSync(path, { force: true });
net
  .createServer({ allowHalfOpen: true }, (socket) => socket.on('error', () => undefined).pipe(socket))
  .listen(path);
process.on('SIGTERM', () => process.exit(0));
