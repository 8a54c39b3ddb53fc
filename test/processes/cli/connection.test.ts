import { describe, expect, test } from 'vitest';
import { runToEnd, CliRun } from '../../fixtures/cli/cli-run.ts';
import { session } from '../../fixtures/cli/fake-supervisor.ts';
import { startFakeSupervisor } from '../../fixtures/cli/start-fake-supervisor.ts';

describe('the connection', () => {
  test('a repeatable call is retried after a lost connection with the same opId', async () => {
    let times = 0;
    const supervisor = await startFakeSupervisor({
      'session/create': (_params, { peer }) => {
        times += 1;
        if (times === 1) {
          peer.close();
          return new Promise(() => undefined);
        }
        return { session: session() };
      },
    });
    const { code } = await runToEnd(['session', 'create', 'counter'], { home: supervisor.home });
    expect(code).toBe(0);
    const ids = supervisor.requests.map(({ params }) => (params as { opId: string }).opId);
    expect(ids).toHaveLength(2);
    expect(ids[0]).toBe(ids[1]);
  });

  test('a request that only reads is repeated after a lost connection, and one that could do something twice is not', async () => {
    let times = 0;
    const supervisor = await startFakeSupervisor({
      'snapshot/verify': (_params, { peer }) => {
        times += 1;
        if (times === 1) {
          peer.close();
          return new Promise(() => undefined);
        }
        return { ok: true, objects: 1, bytes: 1, damaged: 0, damages: [] };
      },
      gc: (_params, { peer }) => {
        peer.close();
        return new Promise(() => undefined);
      },
    });
    const { home, requests } = supervisor;
    expect(await runToEnd(['snapshot', 'verify', 'snp-mfzwizltmfzwizlt'], { home })).toMatchObject({
      code: 0,
    });
    expect((await runToEnd(['gc'], { home })).code).not.toBe(0);
    expect(requests.map(({ method }) => method)).toEqual(['snapshot/verify', 'snapshot/verify', 'gc']);
  });

  test('^C ends a waiting command and cancels its request', async () => {
    const cancelled = Promise.withResolvers<undefined>();
    const supervisor = await startFakeSupervisor({
      'supervisor/doctor': (_params, { signal }) => {
        signal.addEventListener('abort', () => cancelled.resolve(undefined));
        return new Promise(() => undefined);
      },
    });
    const driven = new CliRun(['doctor'], { home: supervisor.home });
    while (supervisor.requests.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    driven.signal('SIGINT');
    expect(await driven.result).toMatchObject({ code: 130, stderr: 'error cancelled: interrupted\n' });
    await cancelled.promise;
    expect(driven.signalListenerCount('SIGINT')).toBe(0);
  });

  test('a closed standard output ends the command without an error', async () => {
    const sessions = Array.from({ length: 50 }, () => session());
    const supervisor = await startFakeSupervisor({ 'session/list': () => ({ sessions, nextCursor: null }) });
    const driven = new CliRun(['session', 'list'], { home: supervisor.home });
    driven.stdout.destroy(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }));
    expect(await driven.result).toMatchObject({ code: 0, stderr: '' });
  });

  test('a long request shows its progress on a terminal and clears it afterwards', async () => {
    const pulled = Promise.withResolvers<undefined>();
    const supervisor = await startFakeSupervisor({
      'supervisor/doctor': async (_params, { progress }) => {
        progress('Pulling the image', 1, 4, 'layers');
        await pulled.promise;
        return { checks: [] };
      },
    });
    const driven = new CliRun(['doctor'], { home: supervisor.home, terminal: 80, env: { NO_COLOR: '1' } });
    await driven.waitForText('Pulling the image [######------------------] 1 of 4 layers');
    pulled.resolve(undefined);
    const onTerminal = await driven.result;
    expect(onTerminal.stderr.endsWith('\r\u001b[K')).toBe(true);
    expect((await runToEnd(['doctor'], { home: supervisor.home })).stderr).toBe('');
  });
});
