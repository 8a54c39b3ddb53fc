import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';

describe('a storage limit', () => {
  let home: TestHome;
  beforeAll(async () => {
    home = await TestHome.create();
    const more = 'persistence: persistent\nworkspace: { seed: false, limit: 1MiB }\n';
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('small', more))]);
  });
  afterAll(async () => {
    await home.dispose();
  });

  test('warns near it, refuses beyond it and names large files, and accepts again after a deletion', async () => {
    const { sessionId } = z
      .object({ sessionId: z.string() })
      .parse(
        await home.runJson([
          'run',
          'small',
          'mkdir big tiny; head -c 970000 /dev/zero > big/a; echo x > tiny/b',
        ]),
      );
    const warned = async () =>
      (await home.runOk(['session', 'events', sessionId, '--type', 'workspace.near-limit', '--json'])).trim();
    await expect.poll(warned, { timeout: 20_000 }).toContain('1048576');

    // A client is refused before anything is written.
    const put = await home.run(['workspace', 'put', sessionId, '-', 'more'], 'x'.repeat(100_000));
    expect(put.stderr).toMatch(/^error storage_limit: /m);
    expect((await home.run(['workspace', 'cat', sessionId, 'more'])).code).toBe(1);

    // A running turn may exceed the limit; the next one is refused.
    await home.runOk(['run', 'small', 'head -c 500000 /dev/zero > big/c']);
    await expect
      .poll(async () => (await home.run(['run', 'small', 'true'])).code, { timeout: 20_000 })
      .toBe(1);
    const refused = await home.run(['run', 'small', 'true', '--json']);
    expect(refused.stderr).toMatch(/storage_limit/);

    await home.runOk(['workspace', 'rm', sessionId, 'big', '-r']);
    expect(await home.runOk(['run', 'small', 'echo again'])).toBe('again\n');
    expect((await warned()).split('\n')).toHaveLength(1);
  });
});
