import { connect } from 'node:net';

/**
 * Connects stdio to the sidecar's socket, for engines whose files this machine cannot see. It ends when either side
 * ends.
 */
const socket = connect(`${process.env['HOLDFAST_CONTROL'] ?? '/ctl'}/sidecar.sock`);
socket.setNoDelay(true);
process.stdin.pipe(socket);
socket.pipe(process.stdout);
socket.on('error', (error) => {
  console.error(`The sidecar cannot be reached: ${error.message}`);
  process.exit(1);
});
socket.on('close', () => process.exit(0));
process.stdout.on('error', () => socket.destroy());
