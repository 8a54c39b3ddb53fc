import { afterEach } from 'vitest';
import { type FakeHandlers, FakeSupervisor } from './fake-supervisor.ts';

let fake: FakeSupervisor | undefined;
afterEach(async () => {
  await fake?.end();
  fake = undefined;
});

/** A supervisor that answers like this, until the test ends. */
export async function serve(handlers: FakeHandlers): Promise<FakeSupervisor> {
  fake = await FakeSupervisor.start(handlers);
  return fake;
}
