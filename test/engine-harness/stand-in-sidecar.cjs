// A stand-in for the sidecar's program: listens where it would, and gives back what it gets. `relay` joins stdio to it.
const fs = require('node:fs');
const net = require('node:net');
const path = '/ctl/sidecar.sock';
if (process.argv[2] === 'relay') {
  const socket = net.connect(path);
  socket.on('error', (error) => {
    console.error(error.message);
    process.exit(1);
  });
  process.stdin.pipe(socket).pipe(process.stdout);
} else {
  fs.rmSync(path, { force: true });
  const echo = (socket) => socket.on('error', () => undefined).pipe(socket);
  net.createServer({ allowHalfOpen: true }, echo).listen(path);
  process.on('SIGTERM', () => process.exit(0));
}
