import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { EngineConnection } from '../../../supervisor/engine/docker/connection.ts';
import { Naming } from '../../../supervisor/engine/docker/labels.ts';
import { waitUntil } from '../../fixtures/protocol/peers.ts';

const QUICK_MS = 300;

/** A fake: a real engine cannot delay one response and answer the next at once. */
class FakeEngine {
  readonly #folder = mkdtempSync(join(tmpdir(), 'holdfast-engine-'));
  readonly socketPath = join(this.#folder, 'engine.sock');
  readonly asked: string[] = [];
  readonly #held: ServerResponse[] = [];
  #following: ServerResponse | undefined;
  /** Paths without a response. */
  readonly late = new Set<string>();
  /** Paths whose connection is reset. */
  readonly cut = new Set<string>();
  readonly #server = createServer((request, response) => {
    const path = (request.url ?? '').replace(/^\/v[\d.]+/, '').replace(/\?.*/, '');
    this.asked.push(path);
    if (this.cut.has(path)) request.destroy();
    else if (this.late.has(path)) this.#held.push(response);
    else this.#answer(path, response);
  });

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(this.socketPath, resolve));
  }

  /** Sends the delayed responses. */
  release(path: string): void {
    this.late.delete(path);
    for (const response of this.#held.splice(0)) this.#answer(path, response);
  }

  tell(Action: string, session: string): void {
    const Actor = { ID: 'one', Attributes: { 'dev.holdfast.session': session } };
    this.#following?.write(`${JSON.stringify({ Type: 'container', Action, Actor })}\n`);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
    rmSync(this.#folder, { recursive: true });
  }

  #answer(path: string, response: ServerResponse): void {
    response.writeHead(200, { 'content-type': 'application/json' });
    if (path === '/events') {
      response.write('\n');
      this.#following = response;
    } else response.end(JSON.stringify(path === '/version' ? { Version: '20.10', ApiVersion: '1.41' } : {}));
  }
}

let engine: FakeEngine;
let connection: EngineConnection;
beforeEach(async () => {
  engine = new FakeEngine();
  await engine.listen();
  connection = new EngineConnection({
    resolveEndpoint: () => ({ socketPath: engine.socketPath, source: 'default' }),
    naming: new Naming('home'),
    reportBackgroundError: () => undefined,
    pingIntervalMs: 60_000,
    queryMs: QUICK_MS,
  });
});
afterEach(async () => {
  await connection.close();
  await engine.close();
});

const isUp = (): boolean => connection.status().reachable;
/** Waits until it follows the events and nothing else is under way. */
async function followed(): Promise<void> {
  connection.start();
  await waitUntil(() => isUp() && engine.asked.includes('/events'));
}
async function ask(path: string): Promise<unknown> {
  const api = await connection.api();
  return await api
    .json({ what: 'Cannot ask', method: 'GET', path, timeoutMs: QUICK_MS })
    .catch((error: unknown) => (error instanceof HoldfastError ? error.code : error));
}

describe('an engine that answers late', () => {
  test('with one response but answers a ping: only that call fails, the status stays reachable', async () => {
    await followed();
    const told: boolean[] = [];
    connection.onStatus(({ reachable }) => told.push(reachable));
    engine.late.add('/slow');
    expect(await ask('/slow')).toBe('engine_unavailable');
    await waitUntil(() => engine.asked.includes('/_ping'));
    expect(await ask('/quick')).toEqual({});
    expect([isUp(), told]).toEqual([true, []]);
  });

  test('with every response is unreachable, and reachable again as soon as it answers', async () => {
    await followed();
    for (const path of ['/slow', '/_ping', '/version']) engine.late.add(path);
    expect(await ask('/slow')).toBe('engine_unavailable');
    await waitUntil(() => !isUp());
    // Late enough that its delays would have grown to the longest.
    const tries = () => engine.asked.filter((path) => path === '/version').length;
    await waitUntil(() => tries() > 6, 10_000);
    const began = performance.now();
    engine.release('/version');
    await waitUntil(isUp);
    // Below the longest delay, 5 s.
    expect(performance.now() - began).toBeLessThan(4000);
  });

  test('with its event stream while another call loses the connection: it reconnects by itself', async () => {
    engine.late.add('/events');
    engine.cut.add('/broken');
    await followed();
    expect(await ask('/broken')).toBe('engine_unavailable');
    expect(isUp()).toBe(false);
    engine.release('/events');
    await waitUntil(isUp);
    await waitUntil(() => engine.asked.filter((path) => path === '/events').length === 2);
    expect(await ask('/quick')).toEqual({});
  });
});

test('an exit event that precedes the container list is emitted again once the list agrees', async () => {
  await followed();
  const changes: string[] = [];
  connection.watch(({ sessionId }) => {
    // The notice after a reconnect, that anything may have changed, may arrive only now.
    if (sessionId !== null) changes.push(sessionId);
  });
  engine.late.add('/containers/one/json');
  engine.tell('die', 'ses-1');
  await waitUntil(() => engine.asked.includes('/containers/one/json'));
  expect(changes).toEqual(['ses-1']);
  engine.release('/containers/one/json');
  await waitUntil(() => changes.length === 2);
  expect(changes).toEqual(['ses-1', 'ses-1']);
  engine.tell('start', 'ses-2');
  await waitUntil(() => changes.length === 3);
  expect(changes[2]).toBe('ses-2');
});
