import { fork } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import type { HandoffConnection } from '../../../handoff/changes.ts';
import { Journals } from '../../../handoff/journal.ts';
import { recordRecovered } from '../../../handoff/record.ts';
import { soakCount } from '../../setup/run-length.ts';
import { recoverHandoffs, undoHandoff } from '../../../handoff/undo.ts';
import type { KilledClientOptions } from '../../fixtures/handoff/killed-client.ts';
import {
  filesIn,
  GIT_ENV,
  handedOverSession,
  open,
  PersonsRepository,
} from '../../fixtures/handoff/handoff-fixture.ts';

const CLIENT = join(import.meta.dirname, '../../fixtures/handoff/killed-client.ts');
const BEFORE = { a: '1\n', 'sub/b': '1\n', gone: 'gone\n' };
const AFTER = { a: '2\n', 'sub/b': '2\n', 'new/c': 'new\n' };
/** The last steps, in which files of the person change, and from one that is tried to the next. The soak run tries every step. */
const LAST_STEPS = 14;
const STRIDE = soakCount(8, 1);

/** Runs the client until its end. How many steps it took; null if it was killed. */
async function handOffAndDie(
  connection: HandoffConnection,
  folder: string,
  to: KilledClientOptions['to'],
  dieAt: number,
): Promise<number | null> {
  const options: KilledClientOptions = { folder, env: GIT_ENV, to, dieAt };
  const client = fork(CLIENT, [JSON.stringify(options)], { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
  let took = 0;
  client.on('message', (message: { id: number; method: never; params: never } | { steps: number }) => {
    if ('steps' in message) {
      took = message.steps;
      return;
    }
    const { id, method, params } = message;
    void connection.callWithBytes(method, params).then(
      ({ result, bytes }) =>
        client.connected && client.send({ id, result, bytes: bytes.toString('base64') }, () => undefined),
      (error: unknown) => client.connected && client.send({ id, error: String(error) }, () => undefined),
    );
  });
  const [code, signal] = await new Promise<[number | null, string | null]>((resolve) =>
    client.on('exit', (...ended) => resolve(ended)),
  );
  if (signal === 'SIGKILL') return null;
  expect(code).toBe(0);
  return took;
}

test.for(['tree', 'worktree', 'branch'] as const)(
  'a client that is killed at any step leaves everything or nothing: %s',
  { timeout: 240_000 },
  async (to) => {
    const tryAt = async (dieAt: number): Promise<number | null> => {
      const repository = new PersonsRepository();
      const head = repository.commit(BEFORE);
      repository.write({ mine: 'not committed\n' });
      const { connection, types } = await handedOverSession(BEFORE, AFTER, { head });
      const seen = () => ({
        files: filesIn(repository.folder),
        references: repository.git('for-each-ref'),
        status: repository.git('status', '--porcelain'),
        worktrees: repository.git('worktree', 'list', '--porcelain'),
      });
      const was = seen();
      const steps = await handOffAndDie(connection, repository.folder, to, dieAt);
      const own = await open(repository.folder);
      const { failed } = await recoverHandoffs(own);
      await recordRecovered(connection, own);
      expect(failed, `killed at ${dieAt}`).toEqual([]);
      const { journals } = await new Journals(join(repository.folder, '.git')).list();
      expect(journals.map(({ state, recorded }) => [state, recorded])).toEqual(
        journals.length === 0 ? [] : [['made', true]],
      );
      // What the supervisor was told is what is there.
      expect(types().includes('handoff.made')).toBe(journals.length === 1);
      if (steps !== null) expect(journals).toHaveLength(1);
      if (journals.length === 1) await undoHandoff(own, { force: false });
      expect(seen(), `killed at ${dieAt}`).toEqual(was);
      const beside = readdirSync(dirname(repository.folder)).filter((name) => name !== 'repository');
      // Only a folder that was claimed and not noted yet may be left, and it is empty.
      for (const name of beside) expect(readdirSync(join(dirname(repository.folder), name))).toEqual([]);
      expect(existsSync(join(repository.folder, '.git/index.lock'))).toBe(false);
      return steps;
    };
    const steps = (await tryAt(Infinity)) ?? 0;
    expect(steps).toBeGreaterThan(LAST_STEPS);
    const first = soakCount(steps - LAST_STEPS + 1, 1);
    for (let dieAt = first; dieAt <= steps; dieAt += STRIDE) expect(await tryAt(dieAt)).toBeNull();
  },
);
