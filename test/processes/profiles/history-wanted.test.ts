import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { type DeployConnection, deployProject } from '../../../project/deploy.ts';
import { SMALLEST_PROFILE, wantsHistory } from '../../../project/profile-text.ts';
import { temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

test.each([
  ['workspace: { seed: { git: true } }', true],
  ['workspace: { seed: { git: false } }', false],
  ['workspace: { seed: { git: "true" } }', false],
  ['workspace: { seed: . }', false],
  ['# workspace: { seed: { git: true } }', false],
  ['workspace: [', false],
])('%s sends the history: %s', async (text, wanted) => {
  expect(await wantsHistory(`${SMALLEST_PROFILE}\n${text}\n`)).toBe(wanted);
});

test('a supervisor that asks for a history which the profile does not name gets none', async () => {
  const directory = temporaryDirectory();
  writeFileSync(join(directory, 'holdfast.yaml'), SMALLEST_PROFILE);
  writeFileSync(join(directory, 'agent.py'), 'x');
  const trees: unknown[] = [];
  const call = (method: string, params: { readonly tree?: string }): Promise<unknown> => {
    if (method === 'profile/deploy/begin')
      return Promise.resolve({ upload: 'upl', history: true, destinations: [], result: null });
    if (params.tree !== undefined) trees.push(params.tree);
    return Promise.resolve({});
  };
  const connection = { call } as unknown as DeployConnection;
  const deploy = deployProject(connection, { directory, home: '/nonexistent', opId: 'op', attempts: 1 });
  await expect(deploy).rejects.toMatchObject({ code: 'protocol_error' });
  expect(trees).not.toContain('history');
});
