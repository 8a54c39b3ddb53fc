// A request with a credential beside the same request without anything in between: node bench/credentials.ts [--json] [--rounds N]
// Sidecar, supervisor and server are in this process, the egress proxy in one of its own, without its container.
import { once } from 'node:events';
import { Agent as HttpAgent, type IncomingMessage, request as httpRequest } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { CredentialChain } from '../test/egress-harness/credential-chain.ts';
import { TEST_CERTIFICATE } from '../test/egress-harness/test-certificate.ts';
import { ProxyProcess } from '../supervisor/egress/proxy-process.ts';
import { ChildProxies } from '../test/egress-harness/child-proxy.ts';
import { silent } from '../test/egress-harness/in-process-egress.ts';
import { interleave, median, Report, timed } from './measure.ts';

const wanted = process.argv.indexOf('--rounds');
const rounds = wanted < 0 ? 7 : Number(process.argv[wanted + 1]);
const REQUESTS = 100;
const UPLOAD_BYTES = 100 * 2 ** 20;
const PIECE = Buffer.alloc(256 * 1024, 'x');

const proxy = new ProxyProcess({ launch: new ChildProxies().launch, log: silent });
const chain = await CredentialChain.open({
  proxy,
  limits: { requests: 1_000_000, bytes: 2 ** 50 },
  answer: (request, response) => {
    request.resume();
    request.on('end', () => response.end('hello'));
  },
});
const direct = new Agent({ keepAlive: true, ca: TEST_CERTIFICATE.cert, servername: 'api.test' });
const kept = new HttpAgent({ keepAlive: true });
const ways = {
  ours: () => httpRequest({ host: '127.0.0.1', port: chain.port, path: '/', method: 'POST', agent: kept }),
  direct: () =>
    httpsRequest({
      host: '127.0.0.1',
      port: chain.credential.port,
      path: '/',
      method: 'POST',
      agent: direct,
    }),
};
type Way = keyof typeof ways;

async function exchange(way: Way, bytes: number): Promise<void> {
  const sent = ways[way]();
  for (let left = bytes; left > 0; left -= PIECE.length) if (!sent.write(PIECE)) await once(sent, 'drain');
  sent.end('x');
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  answer.resume();
  await once(answer, 'end');
}

try {
  const report = new Report('A request with a credential');
  const each = async (bytes: number, count: number): Promise<Record<Way, number>> => {
    const all: Record<Way, number[]> = { ours: [], direct: [] };
    const task = (way: Way) => async (): Promise<number> => {
      const samples: number[] = [];
      for (let at = 0; at < count; at += 1) samples.push(await timed(() => exchange(way, bytes)));
      all[way].push(...samples);
      return median(samples);
    };
    await interleave(rounds, { ours: task('ours'), direct: task('direct') });
    return { ours: median(all.ours), direct: median(all.direct) };
  };
  await exchange('ours', 0);
  await exchange('direct', 0);
  const small = await each(0, REQUESTS);
  report.add({
    name: 'a request on a kept connection, more than a direct one',
    ours: small.ours - small.direct,
    unit: 'ms',
    target: { atMost: 3 },
    samples: rounds * REQUESTS,
  });
  const large = await each(UPLOAD_BYTES, 1);
  const rate = (ms: number): number => UPLOAD_BYTES / 2 ** 20 / (ms / 1000);
  report.add({
    name: 'an upload of 100 MB',
    ours: rate(large.ours),
    unit: 'MB/s',
    peer: { name: 'direct', value: rate(large.direct) },
    ratio: rate(large.ours) / rate(large.direct),
    samples: rounds,
  });
  process.exitCode = report.finish() ? 0 : 1;
} finally {
  direct.destroy();
  kept.destroy();
  await chain.dispose();
  await proxy.close();
}
