// What bench/egress.ts runs in a container: node -e THIS TASK PROXY PORT COUNT. Prints ms, measured inside.
import { once } from 'node:events';
import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';

const [task, proxy, port, count] = process.argv.slice(-4);
const target = `127.0.0.1:${port}`;

/** Connected to the server: directly where the proxy is `-`, else by CONNECT. */
async function open() {
  const direct = proxy === '-';
  const [host, at] = (direct ? target : proxy).split(':');
  const socket = connect({ host, port: Number(at), noDelay: true });
  await once(socket, 'connect');
  if (direct) return socket;
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`);
  const [answer] = await once(socket, 'data');
  if (!String(answer).startsWith('HTTP/1.1 200')) throw new Error(String(answer));
  return socket;
}

/** A new connection, one small answer on it. */
async function hello() {
  const start = performance.now();
  const socket = await open();
  socket.write(`GET / HTTP/1.1\r\nHost: ${target}\r\nConnection: close\r\n\r\n`);
  await once(socket, 'data');
  const took = performance.now() - start;
  socket.destroy();
  return took;
}

async function download(bytes) {
  const socket = connectTls({ socket: await open(), rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  const start = performance.now();
  socket.write(`GET /bytes/${bytes} HTTP/1.1\r\nHost: ${target}\r\nConnection: close\r\n\r\n`);
  let got = 0;
  for await (const chunk of socket) got += chunk.length;
  if (got < bytes) throw new Error(`${got} of ${bytes} bytes`);
  return performance.now() - start;
}

async function parallel() {
  const start = performance.now();
  await Promise.all(Array.from({ length: Number(count) }, hello));
  return performance.now() - start;
}

if (task === 'download') console.log(JSON.stringify([await download(Number(count))]));
else if (task === 'parallel') {
  await hello();
  console.log(JSON.stringify([await parallel()]));
} else {
  const samples = [];
  for (let at = 0; at < Number(count) + 5; at += 1) samples.push(await hello());
  // The first ones are the programs' warming up.
  console.log(JSON.stringify(samples.slice(5)));
}
