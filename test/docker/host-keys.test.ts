import { randomBytes } from 'node:crypto';
import { dirname, join } from 'node:path';
import { mkdirSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { SessionFiles } from '../../extension/files/session-files.ts';
import { beside, typeKeys } from '../fixtures/hosts/keystrokes.ts';
import { NearMachine } from '../fixtures/hosts/near-machine.ts';
import { SSHD, SshServer } from '../fixtures/hosts/ssh-server.ts';
import { deployOver } from '../setup/deploy.ts';

const ROUND_TRIP_MS = 50;
/**
 * For what is on its way before the key, and for a busy machine, beyond an idle connection. `bench/remote.ts` measures it
 * on a quiet one, where 50 ms are enough.
 */
const SLACK_MS = 250;
const KEYS = 15;
const BULK_BYTES = 32 * 2 ** 20;

function median(samples: readonly number[]): number {
  return [...samples].sort((a, b) => a - b)[Math.floor(samples.length / 2)] ?? Number.NaN;
}

test.skipIf(SSHD === undefined)(
  'a key is echoed in time while files of 32 MB are carried in either direction, over the same connection and beside it (needs sshd)',
  async ({ onTestFinished }) => {
    const { DOCKER_HOST } = process.env;
    const server = await SshServer.start(SSHD ?? '', {
      environment: {
        PATH: `${dirname(process.execPath)}:/usr/bin:/bin`,
        ...(DOCKER_HOST === undefined ? {} : { DOCKER_HOST }),
      },
    });
    const near = new NearMachine(server, server.overLink({ delayMs: ROUND_TRIP_MS / 2 }));
    const [typing, copying] = [near.client(), near.client()];
    onTestFinished(async () => {
      typing.close();
      copying.close();
      await near.run('purge', '--force', '--host', 'far');
      await near.dispose({ stopsFar: false });
      await server.stop();
    });
    const project = join(server.folder, 'project');
    mkdirSync(project);
    writeFileSync(
      join(project, 'holdfast.yaml'),
      'name: keys\nagent: { protocol: command, command: [cat] }\nworkspace: { seed: false }\npersistence: persistent\n',
    );
    await deployOver({ call: (method, params, options) => typing.call(method, params, options) }, project);
    const { id: session } = (await typing.call('session/create', { profile: 'keys' })).session;
    await typing.call('session/resume', { session });

    const idle = median(await typeKeys(typing, session, KEYS));
    const content = randomBytes(BULK_BYTES);
    for (const client of [typing, copying]) {
      const files = new SessionFiles({
        call: client.call.bind(client),
        callWithBytes: client.callWithBytes.bind(client),
        of: () => ({ ready: () => client.peer() }),
      });
      const path = '/workspace/large.bin';
      const upload = () => files.write(session, path, content, { create: true, overwrite: true });
      const download = () => files.read({ session }, path);
      for (const carry of [upload, download]) {
        const samples = await beside(carry, () => typeKeys(typing, session, KEYS));
        expect(median(samples), `${carry.name}, ${JSON.stringify(samples)}`).toBeLessThan(
          Math.max(idle, ROUND_TRIP_MS) + SLACK_MS,
        );
      }
    }
  },
  300_000,
);
