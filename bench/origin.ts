// The server of bench/egress.ts, a process of its own: node bench/origin.ts CERTIFICATE KEY. Prints its ports, ends with its stdin.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';

const [certificate = '', key = ''] = process.argv.slice(2);
const PIECE = Buffer.alloc(256 * 1024, 'holdfast');

/** `/bytes/N`; anything else is a word. */
function answer(request: IncomingMessage, response: ServerResponse): void {
  let left = Number(/^\/bytes\/(\d+)$/.exec(request.url ?? '')?.[1] ?? 0);
  response.writeHead(200, { 'Content-Length': left === 0 ? 5 : left });
  if (left === 0) response.end('hello');
  const pour = (): void => {
    while (left > 0) {
      const piece = PIECE.subarray(0, Math.min(left, PIECE.length));
      left -= piece.length;
      if (!response.write(piece)) {
        response.once('drain', pour);
        return;
      }
    }
    response.end();
  };
  if (left > 0) pour();
}

const plain = createServer(answer).listen({ port: 0, host: '127.0.0.1', backlog: 1024 });
const tls = createTlsServer({ cert: readFileSync(certificate), key: readFileSync(key) }, answer);
tls.listen({ port: 0, host: '127.0.0.1', backlog: 1024 });
await Promise.all([once(plain, 'listening'), once(tls, 'listening')]);
console.log(JSON.stringify([plain, tls].map((server) => (server.address() as AddressInfo).port)));
process.stdin.resume().once('end', () => process.exit());
