import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SupervisorConnection } from '../../../protocol/client/connect.ts';
import { TestHome } from '../../setup/test-home.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { connectTo } from '../../setup/test-client.ts';

const ROUNDS = 6;

describe('what clients ask for during a restore', () => {
  let home: TestHome;
  let connection: SupervisorConnection;
  beforeAll(async () => {
    home = await TestHome.create();
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    connection = await connectTo(home.path);
  });
  afterAll(async () => {
    connection.close();
    await home.dispose();
  });

  test('a save is in the undo snapshot or in the workspace afterwards, whenever it arrives', async () => {
    const { peer } = connection;
    await home.runOk(['session', 'create', 'shell', '--name', 'main']);
    await home.runOk(['prompt', 'main', 'for n in $(seq 400); do echo $n > f$n; done']);
    const { id: snapshot } = await peer.call('snapshot/create', { session: 'main' });
    const namesOf = async (where: { session: string } | { snapshot: string }): Promise<Set<string>> => {
      const names = new Set<string>();
      let cursor: string | undefined;
      do {
        const page = await peer.call('files/list', {
          ...where,
          path: '/workspace',
          ...(cursor === undefined ? {} : { cursor }),
        });
        for (const { name } of page.entries) names.add(name);
        cursor = page.nextCursor ?? undefined;
      } while (cursor !== undefined);
      return names;
    };

    let counted = 0;
    for (let round = 0; round < ROUNDS; round += 1) {
      await peer.call('exec/start', { session: 'main', command: ['sh', '-c', 'echo other | tee f*'] });
      const until = { isDone: false };
      const saved: string[] = [];
      const saving = (async () => {
        while (!until.isDone) {
          counted += 1;
          const name = `saved-${counted}`;
          const path = `/workspace/${name}`;
          await peer.callWithBytes(
            'files/write',
            { session: 'main', path, create: true },
            { bytes: Buffer.from(name) },
          );
          saved.push(name);
        }
      })();
      saving.catch(() => undefined);
      try {
        const { undo } = await peer.call('snapshot/restore', { session: 'main', snapshot, cancel: true });
        until.isDone = true;
        await saving;
        if (undo === null) throw new Error('there is no way back');
        const kept = new Set([
          ...(await namesOf({ snapshot: undo })),
          ...(await namesOf({ session: 'main' })),
        ]);
        expect(saved.length).toBeGreaterThan(0);
        expect(saved.filter((name) => !kept.has(name))).toEqual([]);
      } finally {
        until.isDone = true;
        await saving.catch(() => undefined);
      }
    }
  });

  test('a repeated request gets the answer of the first, also where it came before the first had begun', async () => {
    const { peer } = connection;
    await home.runOk(['session', 'create', 'shell', '--name', 'repeated']);
    await home.runOk(['prompt', 'repeated', 'for n in $(seq 200); do echo $n > f$n; done']);
    const { id: snapshot } = await peer.call('snapshot/create', { session: 'repeated' });
    await home.runOk(['exec', 'repeated', '--', 'sh', '-c', 'rm f*']);
    const restore = (): Promise<unknown> =>
      peer.call('snapshot/restore', { session: 'repeated', snapshot, opId: 'one-restore' });
    const [first, second] = await Promise.all([restore(), restore()]);
    expect(first).toMatchObject({ created: 200 });
    expect(second).toEqual(first);
    expect(await restore()).toEqual(first);
    const { events } = await peer.call('session/events', { session: 'repeated', type: 'workspace.restored' });
    expect(events).toHaveLength(1);
  });
});
