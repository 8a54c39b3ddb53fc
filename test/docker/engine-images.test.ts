import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { PullProgress } from '../../supervisor/engine/port.ts';
import { FakeRegistry } from '../engine-harness/fake-registry.ts';
import { EngineFixture, waitUntil } from '../engine-harness/engine-fixture.ts';
import { engineAt } from '../engine-harness/private-engine.ts';

const docker = engineAt('/var/run/docker.sock');
const SIZE = 6 * 2 ** 20;
let home: EngineFixture;
let registry: FakeRegistry;
const never = new AbortController().signal;
const nothing = (): void => undefined;

beforeAll(async () => {
  home = new EngineFixture({ image: 'none' });
  registry = await FakeRegistry.start(SIZE);
});
afterAll(async () => {
  await home.close();
  await registry.close();
});

describe('images', () => {
  test('are pulled with increasing progress and then have an identity', async () => {
    const { images } = home.engine;
    expect(await images.has(registry.reference)).toBe(false);
    await expect(images.identity(registry.reference)).rejects.toThrow(
      expect.objectContaining({ code: 'image_not_found' }),
    );
    const seen: PullProgress[] = [];
    try {
      await images.pull(registry.reference, (progress) => seen.push(progress), never);
      expect(await images.has(registry.reference)).toBe(true);
      expect(await images.identity(registry.reference)).toMatch(/@sha256:[0-9a-f]{64}$/);
    } finally {
      await docker.getImage(registry.reference).remove({ force: true });
    }
    const done = seen.map(({ doneBytes }) => doneBytes);
    expect(done).toEqual([...done].sort((a, b) => a - b));
    const total = seen.at(-1)?.totalBytes ?? 0;
    expect(total).toBeGreaterThan(SIZE);
    expect(done.at(-1)).toBe(total);
  });

  test('a pull is aborted at once', async () => {
    registry.stallAfter = 1000;
    try {
      const abort = new AbortController();
      let begun = false;
      const pulling = home.engine.images.pull(registry.reference, () => (begun = true), abort.signal);
      pulling.catch(nothing);
      await waitUntil(() => begun);
      const at = performance.now();
      abort.abort();
      await expect(pulling).rejects.toThrow(expect.objectContaining({ code: 'cancelled' }));
      // Without the abort it would wait for ever.
      expect(performance.now() - at).toBeLessThan(10_000);
      expect(await home.engine.images.has(registry.reference)).toBe(false);
    } finally {
      registry.stallAfter = null;
    }
  });

  test('a missing image, a missing registry and an invalid name give different errors', async () => {
    const pull = (reference: string): Promise<void> => home.engine.images.pull(reference, nothing, never);
    const absent = registry.reference.replace('thing/one', 'thing/other');
    await expect(pull(absent)).rejects.toThrow(
      expect.objectContaining({ code: 'image_not_found', message: `There is no image ${absent}` }),
    );
    await expect(pull('127.0.0.1:9/thing:1')).rejects.toThrow(
      expect.objectContaining({ code: 'image_pull_failed', why: expect.stringMatching(/refused/) as string }),
    );
    for (const name of ['Not A Name', '../../containers', 'a//b', 'x?force=1', '']) {
      await expect(home.engine.images.has(name), name).rejects.toThrow(
        expect.objectContaining({ code: 'invalid_params' }),
      );
    }
    await expect(pull('UPPER/case')).rejects.toThrow(expect.objectContaining({ code: 'invalid_params' }));
  });
});
