import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { DockerApi } from '../../../supervisor/engine/docker/api.ts';
import { Containers } from '../../../supervisor/engine/docker/containers.ts';
import { Execs } from '../../../supervisor/engine/docker/exec.ts';
import { EngineRefusal } from '../../../supervisor/engine/docker/errors.ts';
import { Naming } from '../../../supervisor/engine/docker/labels.ts';

const RUNC =
  'Cannot unpause container box: cannot resume a running process: unknown: failure not quoted anywhere';

/** An engine with other error texts; a real one cannot produce them on demand. It has one container, `box`. */
class FakeEngine {
  readonly #folder = mkdtempSync(join(tmpdir(), 'holdfast-fake-engine-'));
  readonly socketPath = join(this.#folder, 'engine.sock');
  readonly asked: string[] = [];
  /** Successive states of the container; the last one stays. Null: it does not exist. */
  states: (string | null)[] = ['running'];
  refusal: { status: number; message: string } | null = null;
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      const path = (request.url ?? '').replace(/\?$/, '');
      this.asked.push(`${request.method ?? ''} ${path}`);
      const answer = (status: number, body: object): void => {
        response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
      };
      if (path === '/containers/box/json') {
        const [state = null] = this.states;
        if (this.states.length > 1) this.states.shift();
        if (state === null) answer(404, { message: 'No such container: box' });
        else answer(200, containerOf(state));
      } else if (request.method === 'DELETE') {
        this.states = [null];
        answer(200, {});
      } else if (this.refusal !== null) answer(this.refusal.status, { message: this.refusal.message });
      else answer(200, {});
    });
  }

  static async start(): Promise<FakeEngine> {
    const engine = new FakeEngine();
    engine.#server.listen(engine.socketPath);
    await once(engine.#server, 'listening');
    return engine;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
    rmSync(this.#folder, { recursive: true });
  }
}

function containerOf(state: string): object {
  const isUp = state === 'running' || state === 'paused';
  const State = { Status: state, Running: isUp, Paused: state === 'paused', ExitCode: 0, OOMKilled: false };
  return { Id: 'box', State, Config: { Labels: {} } };
}

let engine: FakeEngine;
let containers: Containers;
let execs: Execs;
beforeEach(async () => {
  engine = await FakeEngine.start();
  const api = new DockerApi(engine.socketPath, () => undefined);
  const patience = { queryMs: 5000, operationMs: 5000 };
  containers = new Containers(() => Promise.resolve(api), new Naming('home'), patience);
  execs = new Execs(() => Promise.resolve(api), containers, patience);
});
afterEach(() => engine.close());

const times = (what: string): number => engine.asked.filter((one) => one === what).length;

describe('an engine with other error texts', () => {
  test.each([
    [500, RUNC],
    [409, 'Container box is not paused'],
    [409, 'conteneur déjà en marche'],
  ])('unpause with %i "%s" succeeds if the container runs', async (status, message) => {
    engine.refusal = { status, message };
    await containers.unpause('Cannot go on', 'box');
    expect(times('POST /containers/box/unpause')).toBe(1);
  });

  test('unpause while another process unpauses it succeeds once the engine shows it running', async () => {
    engine.refusal = { status: 500, message: RUNC };
    engine.states = ['paused', 'paused', 'running'];
    await containers.unpause('Cannot go on', 'box');
    expect(times('POST /containers/box/unpause')).toBe(3);
  });

  test.each([['paused'], ['exited'], [null]])(
    'unpause of a container that stays %s fails with the engine’s error',
    async (state) => {
      engine.refusal = { status: 500, message: RUNC };
      engine.states = [state];
      await expect(containers.unpause('Cannot go on', 'box')).rejects.toThrow(EngineRefusal);
    },
  );

  test('pause succeeds when the container is paused, retries while it runs, fails when it has exited', async () => {
    engine.refusal = { status: 500, message: 'cgroup freezer: device or resource busy' };
    engine.states = ['running', 'paused'];
    await containers.pause('Cannot pause', 'box');
    expect(times('POST /containers/box/pause')).toBe(2);
    engine.states = ['exited'];
    await expect(containers.pause('Cannot pause', 'box')).rejects.toThrow(/resource busy/);
    expect(times('POST /containers/box/pause')).toBe(3);
  });

  test('a container that is listed as paused and cannot be unpaused is stopped anyway', async () => {
    engine.refusal = { status: 500, message: RUNC };
    engine.states = ['paused'];
    await containers.stop('Cannot stop', 'box', 'paused', 500);
    await containers.remove('Cannot stop', 'box');
    expect(times('DELETE /containers/box?force=true&v=true')).toBe(1);
  });

  test.each([
    ['paused', 409, 'invalid_state'],
    ['paused', 500, 'invalid_state'],
    ['exited', 409, 'sandbox_lost'],
    ['exited', 500, 'sandbox_lost'],
    [null, 404, 'sandbox_lost'],
    ['running', 409, 'invalid_state'],
  ])('an exec in a container that is %s, refused with %i, fails with %s', async (state, status, code) => {
    engine.refusal = { status, message: 'nein' };
    engine.states = [state];
    await expect(execs.start('box', {}, false, 'Cannot run')).rejects.toMatchObject({ code });
  });

  test('an exec in a running container fails with the reason that the engine gave', async () => {
    engine.refusal = { status: 500, message: 'the container is not running out of reasons' };
    await expect(execs.start('box', {}, false, 'Cannot run')).rejects.toThrow(EngineRefusal);
  });
});

test('an image is removed without those that it was made from', async () => {
  await containers.removeImage('holdfast/prepared:one');
  expect(engine.asked).toEqual(['DELETE /images/holdfast/prepared:one?noprune=true']);
});

describe('the watchdog that unpauses after a killed supervisor', () => {
  /** Its exit code after its parent has gone. */
  async function thaw(): Promise<number | null> {
    const program = join(import.meta.dirname, '../../../supervisor/engine/docker/thaw.ts');
    const child = spawn(process.execPath, [program, engine.socketPath, 'box'], { stdio: ['pipe', 2, 2] });
    child.stdin?.destroy();
    const [code] = (await once(child, 'exit')) as [number | null];
    return code;
  }

  test('stops when the container runs, whatever the text of the error', async () => {
    engine.refusal = { status: 500, message: RUNC };
    engine.states = ['paused', 'running'];
    expect(await thaw()).toBe(0);
    expect(engine.asked).toEqual([
      'POST /containers/box/unpause',
      'GET /containers/box/json',
      'POST /containers/box/unpause',
      'GET /containers/box/json',
    ]);
  });

  test('stops when the container is gone', async () => {
    engine.refusal = { status: 500, message: 'so weird' };
    engine.states = [null];
    expect(await thaw()).toBe(0);
    expect(engine.asked).toHaveLength(2);
  });
});
