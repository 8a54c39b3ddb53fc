import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { EngineWithoutImage } from '../fixtures/hosts/engine-without-image.ts';
import { NearMachine, pidsWith } from '../fixtures/hosts/near-machine.ts';
import { SSHD, SshServer } from '../fixtures/hosts/ssh-server.ts';

/** Without Node 24, which has to be brought. */
const FAR_PATH = '/usr/bin:/bin';

test.skipIf(SSHD === undefined)(
  'a host with nothing but Docker runs an agent, and its turn goes on while nobody is connected (needs sshd)',
  async ({ onTestFinished, expect: check }) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-far-engine-'));
    const engine = new EngineWithoutImage(join(folder, 'docker.sock'), __SIDECAR_IMAGE__);
    await engine.listen();
    const server = await SshServer.start(SSHD ?? '', {
      environment: { PATH: FAR_PATH, DOCKER_HOST: `unix://${folder}/docker.sock` },
    });
    const near = new NearMachine(server);
    onTestFinished(async () => {
      await near.run('purge', '--force', '--host', 'far');
      await near.dispose();
      await server.stop();
      engine.close();
      rmSync(folder, { recursive: true });
    });

    // The program, Node and the missing image are brought.
    const update = await near.run('host', 'update', 'far', '--json');
    expect(update).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(update.stdout)).toMatchObject({ host: 'far', build: __BUILD_ID__, images: 'sent' });
    expect(engine.loaded).toBeGreaterThan(50e6);
    expect(readdirSync(join(server.farHome, 'bin')).sort()).toEqual(
      [__BUILD_ID__, `node-${process.versions.node}`].sort(),
    );
    const doctor = await near.run('host', 'doctor', 'far', '--json');
    expect(JSON.parse(doctor.stdout)).toMatchObject({ host: 'far' });
    expect(doctor.code).toBe(0);

    // The project is here, and is uploaded.
    const project = join(near.home, '..', `${near.home.split('/').at(-1) ?? ''}-project`);
    mkdirSync(project);
    onTestFinished(() => void execFileSync('rm', ['-rf', project]));
    writeFileSync(
      join(project, 'holdfast.yaml'),
      'name: slow\nagent: { protocol: command, command: [sh, task.sh] }\npersistence: persistent\n',
    );
    writeFileSync(
      join(project, 'task.sh'),
      'sleep "$(cat)"; date >> /workspace/done; wc -l < /workspace/done\n',
    );
    expect(await near.run('deploy', project, '--host', 'far')).toMatchObject({ code: 0 });
    const first = await near.run('run', 'slow', '0', '--host', 'far', '--json');
    expect(JSON.parse(first.stdout)).toMatchObject({ status: 'succeeded', output: '1\n' });
    expect(existsSync(join(near.home, 'holdfast.db'))).toBe(false);

    // Everything between is killed while a turn runs: it goes on, and runs once.
    const started = await near.run('run', 'slow', '3', '--no-wait', '--host', 'far', '--json');
    const turn = String((JSON.parse(started.stdout) as { turnId?: unknown }).turnId);
    for (const pid of pidsWith(`${server.folder}/ssh_config -T`)) process.kill(pid, 'SIGKILL');
    const waited = await near.run('turn', 'wait', turn, '--host', 'far', '--json');
    expect(waited.stdout).toContain('succeeded');
    const file = await near.run('workspace', 'cat', 'default', 'done', '--host', 'far');
    check(file.stdout.trim().split('\n')).toHaveLength(2);

    // A person who watches when the connection is cut gets the rest.
    const watching = near.run('run', 'slow', '3', '--host', 'far', '--json');
    await new Promise((resolve) => setTimeout(resolve, 1500));
    for (const pid of pidsWith(`${server.folder}/ssh_config -T`)) process.kill(pid, 'SIGKILL');
    expect(JSON.parse((await watching).stdout)).toMatchObject({ status: 'succeeded', output: '3\n' });
  },
  400_000,
);
