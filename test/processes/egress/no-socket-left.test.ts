import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { ProxyProcess } from '../../../supervisor/egress/proxy-process.ts';
import { ChildProxies } from '../../egress-harness/child-proxy.ts';
import { InProcessEgress, silent } from '../../egress-harness/in-process-egress.ts';

test('plain requests leave no socket open', async () => {
  const server = createServer((_request, response) => void response.end('hello'));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const here = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const proxy = new ProxyProcess({ launch: new ChildProxies().launch, log: silent });
  const chain = await InProcessEgress.open([here], { proxy });
  const sockets = (): number =>
    process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
  const ask = () => chain.sendRaw(`GET http://${here}/ HTTP/1.1\r\nHost: ${here}\r\n\r\n`, 20_000);
  try {
    const before = sockets();
    for (const said of await Promise.all(Array.from({ length: 100 }, ask)))
      expect(said?.text).toContain('hello');
    await expect.poll(sockets, { timeout: 10_000 }).toBeLessThanOrEqual(before);
  } finally {
    await chain.dispose();
    await proxy.close();
    server.close();
  }
});
