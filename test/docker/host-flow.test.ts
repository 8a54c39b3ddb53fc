import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { expect, test, vi } from 'vitest';
import { z } from 'zod';
import { NearMachine } from '../fixtures/hosts/near-machine.ts';
import { SSHD, SshServer } from '../fixtures/hosts/ssh-server.ts';
import { commitProject } from '../setup/git-project.ts';
import { registerHome } from '../setup/run-homes.ts';

const AGENT = resolve(import.meta.dirname, '../fixtures/acp-agent/agent.mjs');
const PROFILE = `name: task
persistence: persistent
agent: { protocol: acp, command: [node, /agent/.agent/agent.mjs], state: [.acp-agent] }
checks: { test: 'grep -q done notes.txt && ! test -e scratch.txt' }
`;

test.skipIf(SSHD === undefined)(
  'the whole way of a task on another machine 50 ms away: deploy, run, sleep, approve, snapshot, resume, review, check, hand off, verify (needs sshd)',
  { timeout: 400_000 },
  async ({ onTestFinished }) => {
    const { DOCKER_HOST } = process.env;
    const server = await SshServer.start(SSHD ?? '', {
      environment: {
        PATH: `${dirname(process.execPath)}:/usr/bin:/bin`,
        ...(DOCKER_HOST === undefined ? {} : { DOCKER_HOST }),
      },
    });
    const near = new NearMachine(server, server.overLink({ delayMs: 25 }));
    const project = `${near.home}-project`;
    onTestFinished(async () => {
      await near.run('purge', '--force', '--host', 'far');
      await near.dispose({ stopsFar: false });
      await server.stop();
      for (const folder of [project, `${project}-handoff`]) rmSync(folder, { recursive: true, force: true });
    });
    const far = async (...args: string[]): Promise<string> => {
      const { code, stdout, stderr } = await near.run(...args, '--host', 'far');
      if (code !== 0) throw new Error(`${args.join(' ')} ended with ${String(code)}: ${stderr}`);
      return stdout;
    };
    const asked = async <T>(schema: z.ZodType<T>, ...args: string[]): Promise<T> =>
      schema.parse(JSON.parse(await far(...args, '--json')));

    // The repository is on the laptop, at a commit.
    mkdirSync(join(project, '.agent'), { recursive: true });
    writeFileSync(join(project, 'holdfast.yaml'), PROFILE);
    writeFileSync(join(project, 'notes.txt'), 'to do\n');
    copyFileSync(AGENT, join(project, '.agent/agent.mjs'));
    const git = commitProject(project);
    const head = git('rev-parse', 'HEAD');

    expect(await near.run('host', 'add', 'far', server.destination)).toMatchObject({ code: 0 });
    await far('deploy', project);
    registerHome(readFileSync(join(server.farHome, 'id'), 'utf8').trim());

    // The agent works, and asks. The laptop sleeps meanwhile.
    const { turnId, sessionId } = await asked(
      z.object({ turnId: z.string(), sessionId: z.string() }),
      ...[
        'run',
        'task',
        'write notes.txt done\nwrite scratch.txt x\npermission make\nsay finished',
        '--no-wait',
      ],
    );
    await near.disconnect();
    const Waiting = z.object({ permissions: z.array(z.object({ id: z.string(), title: z.string() })) });
    const [permission] = await vi.waitFor(
      async () => {
        const { permissions } = await asked(Waiting, 'permission', 'list', sessionId);
        expect(permissions).toMatchObject([{ title: 'Run make' }]);
        return permissions;
      },
      { timeout: 60_000, interval: 200 },
    );
    await far('permission', 'answer', permission?.id ?? '', 'allow_once');
    const Turn = z.object({ status: z.string(), output: z.string().nullable() });
    expect(await asked(Turn, 'turn', 'wait', turnId)).toEqual({
      status: 'succeeded',
      output: '[make: once]finished',
    });

    // A checkpoint, another sandbox, and the same agent with its memory.
    const { id: snapshot } = await asked(
      z.object({ id: z.string() }),
      ...['snapshot', 'create', sessionId, '--label', 'before review'],
    );
    await far('session', 'stop', sessionId);
    expect(await asked(Turn, 'prompt', sessionId, 'count')).toMatchObject({ output: 'prompt 2' });
    expect(await far('workspace', 'cat', sessionId, 'notes.txt')).toBe('to do\ndone');
    expect(await far('snapshot', 'list', sessionId)).toContain('before review');
    expect(await asked(z.object({ ok: z.boolean() }), 'snapshot', 'verify', snapshot)).toEqual({ ok: true });

    // A person accepts one file, rejects the other, and the check judges what they accepted.
    const Files = z.object({ files: z.array(z.object({ path: z.string() })) });
    const { files } = await asked(Files, 'review', sessionId);
    expect(files.map(({ path }) => path)).toEqual(['/workspace/notes.txt', '/workspace/scratch.txt']);
    await far('review', 'accept', sessionId, 'notes.txt');
    await far('review', 'reject', sessionId, 'scratch.txt');
    const { checks } = await asked(
      z.object({ checks: z.array(z.object({ name: z.string(), exitCode: z.number() })) }),
      ...['check', sessionId, '--accepted'],
    );
    expect(checks).toEqual([{ name: 'test', exitCode: 0 }]);

    // The work comes to the laptop's repository, with a manifest that the other machine signed.
    const made = await asked(
      z.object({ commit: z.string(), branch: z.string(), manifest: z.string(), files: z.number() }),
      ...['handoff', sessionId, '--repository', project, '--to', 'branch'],
    );
    expect(git('diff', '--name-status', head, made.commit)).toBe('M\tnotes.txt');
    expect(git('rev-parse', `${made.branch}^`)).toBe(head);
    expect(git('status', '--porcelain')).toBe('');
    const [manifest, key] = [join(near.home, 'task.manifest.json'), join(near.home, 'key.pem')];
    writeFileSync(key, await far('manifest', 'key'));
    await far('manifest', 'show', sessionId, '--id', made.manifest, '--output', manifest);
    // Without the other machine: by its key alone.
    const verified = await near.run('manifest', 'verify', manifest, '--key', key, '--json');
    expect(JSON.parse(verified.stdout)).toMatchObject({
      valid: true,
      statement: {
        subject: [
          { name: 'tree', digest: { gitTree: git('rev-parse', `${made.commit}^{tree}`) } },
          { name: 'commit', digest: { gitCommit: made.commit } },
        ],
        predicate: { base: { commit: head, branch: 'main' } },
      },
    });
    const Verified = z.object({ valid: z.boolean() });
    expect(await asked(Verified, 'manifest', 'verify', sessionId)).toEqual({ valid: true });
    expect(await asked(z.object({ ok: z.boolean() }), 'session', 'verify', sessionId)).toEqual({ ok: true });
    await near.disconnect();
  },
);
