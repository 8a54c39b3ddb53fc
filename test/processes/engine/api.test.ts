import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterEach, expect, test, vi } from 'vitest';
import { DockerApi } from '../../../supervisor/engine/docker/api.ts';
import { TerseAgent } from '../../../supervisor/engine/docker/terse-agent.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

/** What docker-modem formats of each request before it checks whether debugging is on. */
const whole = { showHidden: true, depth: null };

test('formatting a request for the debug log stays short, however many streams are open', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-api-'));
  const socketPath = join(folder, 'engine.sock');
  const server = createServer((request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    if (request.url === '/events') response.write('\n');
    else response.end('{}');
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  let seen = 0;
  // Counted by hand: a spy would keep everything that the agent refers to.
  vi.spyOn(TerseAgent.prototype, inspect.custom).mockImplementation(() => {
    seen += 1;
    return 'TerseAgent';
  });
  const api = new DockerApi(socketPath, () => undefined);
  const ask = { what: 'Cannot ask', method: 'GET', timeoutMs: 5000 } as const;
  const streams = await Promise.all([1, 2, 3, 4].map(() => api.stream({ ...ask, path: '/events' })));
  expect(await api.json({ ...ask, path: '/info' })).toEqual({});
  expect(seen).toBe(5);
  expect(inspect({ agent: new TerseAgent() }, whole)).toBe('{ agent: TerseAgent }');

  for (const stream of streams) stream.destroy();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true });
});
