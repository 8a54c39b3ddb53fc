import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { SecretSchema } from '../../../protocol/secrets.ts';
import { filesWithSecret, formsIn, LOOK, shownByEngine } from '../../egress-harness/secret-search.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

const SECRET = 'pat-9f2c61d07b/e4+A';

describe('setup, secrets and limits (P2, P5, G7, G11)', () => {
  let home: TestHome;
  beforeAll(async () => {
    home = await TestHome.create();
  });
  afterAll(async () => {
    await home.dispose();
  });
  const deploy = async (name: string, more: string) =>
    home.run([
      'deploy',
      await writeProject(home.projects, shellProject(name, `persistence: persistent\n${more}`)),
    ]);
  const sessionOf = async (name: string): Promise<string> =>
    z.object({ session: z.object({ id: z.string() }) }).parse(await home.runJson(['session', 'show', name]))
      .session.id;
  const secrets = async () =>
    z.object({ secrets: z.array(SecretSchema) }).parse(await home.runJson(['secret', 'list'])).secrets;

  test.concurrent(
    'P2: what the setup declares is there in every new sandbox, and what an agent installed is not',
    async ({ expect }) => {
      const run = [
        'mkdir -p ~/.local/bin && printf "#!/bin/sh\\necho declared\\n" > ~/.local/bin/tool && chmod 755 ~/.local/bin/tool',
      ];
      const deployed = await deploy('p2setup', `setup: { egress: [], run: ${JSON.stringify(run)} }\n`);
      expect(deployed, deployed.stderr).toMatchObject({ code: 0 });
      const spoil =
        '~/.local/bin/tool; echo mine > ~/.local/bin/tool; cp /bin/true ~/.local/bin/other; echo kept > file';
      expect(await home.runOk(['run', 'p2setup', spoil])).toBe('declared\n');
      for (const _ of ['first', 'second']) {
        await home.runOk(['session', 'stop', 'p2setup/default']);
        expect(await home.runOk(['run', 'p2setup', '~/.local/bin/tool; ls ~/.local/bin; cat file'])).toBe(
          'declared\ntool\nkept\n',
        );
      }
    },
  );

  test.concurrent(
    'P5: at its storage limit a session says what is big, and goes on when that is gone',
    async ({ expect }) => {
      await deploy('p5', 'workspace: { seed: false, limit: 1MiB }\n');
      await home.runOk(['run', 'p5', 'mkdir big small; head -c 2000000 /dev/zero > big/a; echo x > small/b']);
      const refused = async () => home.run(['run', 'p5', 'true']);
      await expect
        .poll(async () => (await refused()).stderr, { timeout: 20_000 })
        .toMatch(/^error storage_limit: .*may hold 1048576.*\n?.*workspace du/m);
      const usage = z
        .object({ folders: z.array(z.object({ path: z.string(), bytes: z.number() })) })
        .parse(await home.runJson(['workspace', 'du', 'p5/default']));
      expect(usage.folders.find(({ path }) => path !== '/workspace')).toMatchObject({
        path: expect.stringMatching(/big$/) as string,
        bytes: expect.toSatisfy((bytes: number) => bytes >= 2_000_000) as number,
      });
      await home.runOk(['workspace', 'rm', 'p5/default', 'big', '-r']);
      expect(await home.runOk(['run', 'p5', 'echo again'])).toBe('again\n');
    },
  );

  test('P5, G7: a secret that is set by its name is there for the setup, and for nobody afterwards', async () => {
    expect(await home.runOk(['secret', 'set', 'TOKEN'], `${SECRET}\n`)).toBe('TOKEN is set, version 1\n');
    expect(await secrets()).toMatchObject([{ name: 'TOKEN', profile: null, version: 1, state: 'usable' }]);
    const run = 'test "$(cat /run/secrets/TOKEN)" = "$TOKEN" && printf %s "$TOKEN" | sha256sum > sum';
    const setup = `setup: { egress: [], secrets: [TOKEN], run: ${JSON.stringify(run)} }\n`;
    const deployed = await deploy('g7', setup);
    expect(deployed, deployed.stderr).toMatchObject({ code: 0 });
    expect(formsIn(Buffer.from(deployed.stderr + deployed.stdout), SECRET)).toEqual([]);

    const sum = createHash('sha256').update(SECRET).digest('hex');
    const seen = await home.runOk(['run', 'g7', `cat sum; ls /run/secrets 2>&1; echo "[$TOKEN]"; ${LOOK}`]);
    // The setup had it: this is not an empty claim.
    expect(seen).toContain(sum);
    expect(seen).toContain('[]\n');
    expect(formsIn(Buffer.from(seen), SECRET)).toEqual([]);
    expect(formsIn(await shownByEngine(home, await sessionOf('g7/default')), SECRET)).toEqual([]);
    expect(await filesWithSecret(home.path, SECRET)).toEqual([]);
  });

  test('G7: a setup that keeps its secret is refused, and nothing of it reaches a session', async () => {
    await home.runOk(['secret', 'set', 'KEPT'], SECRET);
    const run = 'printf %s "$KEPT" | base64 > notes';
    const refused = await deploy(
      'g7kept',
      `setup: { egress: [], secrets: [KEPT], run: ${JSON.stringify(run)} }\n`,
    );
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain('KEPT in /workspace/notes');
    expect((await home.run(['run', 'g7kept', 'true'])).stderr).toMatch(/^error not_found: /m);
    expect(await filesWithSecret(home.path, SECRET)).toEqual([]);
  });

  test('G7, G11: an expired secret is deleted from the disk, and no setup gets it', async () => {
    const sealed = async () =>
      (await readdir(join(home.path, 'secrets'))).filter((name) => /^[0-9a-f]{32}$/.test(name));
    const before = await sealed();
    await home.runOk(['secret', 'set', 'SHORT', '--expires', '2s'], SECRET);
    expect((await sealed()).length).toBe(before.length + 1);
    await expect
      .poll(async () => (await secrets()).find(({ name }) => name === 'SHORT')?.state, { timeout: 20_000 })
      .toBe('expired');
    expect(await sealed()).toEqual(before);
    const late = await deploy('g7late', 'setup: { egress: [], secrets: [SHORT], run: "true" }\n');
    expect(late.stderr).toContain('The setup of g7late needs the secret SHORT');
  });
});
