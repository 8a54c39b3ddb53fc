import type { DockerApi } from '../../scripts/setup/docker-api.mjs';
import { ensureEngine, stopEngine } from '../../scripts/setup/engine.mjs';
import { ensureImages } from '../../scripts/setup/images.mjs';
import { Progress } from '../../scripts/setup/progress.mjs';
import { RunHomes } from './run-homes.ts';

const HOME_LABEL = 'dev.holdfast.home';

/** Shared by all projects of a run: the first one prepares the engine, the last one checks that nothing is left. */
interface Shared {
  users: number;
  readonly homes: RunHomes;
  readonly ready: Promise<{ api: DockerApi; started: boolean }>;
}
const SHARED = Symbol.for('holdfast.test.docker');
const place = globalThis as typeof globalThis & { [SHARED]?: Shared | undefined };

/** Before the suites that need an engine: ensures an engine with our images. After them: fails if a suite left something on it. */
export default async function setup(): Promise<() => Promise<void>> {
  const shared = (place[SHARED] ??= { users: 0, homes: new RunHomes(), ready: prepare() });
  shared.users += 1;
  await shared.ready;
  return async () => {
    shared.users -= 1;
    if (shared.users > 0) return;
    const { api, started } = await shared.ready;
    const homes = shared.homes.ids();
    shared.homes.dispose();
    const left = (await api.labelled(HOME_LABEL)).filter(({ value }) => homes.has(value));
    if (started) await stopEngine();
    if (left.length > 0) {
      const names = left.map(({ kind, name, value }) => `${kind} ${name} (${value})`);
      throw new Error(`tests left ${String(left.length)} objects on the engine:\n  ${names.join('\n  ')}`);
    }
  };
}

async function prepare(): Promise<Awaited<Shared['ready']>> {
  const progress = new Progress();
  const { api, started } = await progress.step(
    'Docker engine',
    ensureEngine,
    ({ socket }) => `answers at ${socket}`,
  );
  await progress.step(
    'images',
    (step) => ensureImages(api, step),
    (done) => done.join(', '),
  );
  return { api, started };
}
