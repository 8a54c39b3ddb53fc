import { mkdir, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createHash, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import { FaultHome } from '../faults/harness/fault-home.ts';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { deploy } from '../setup/deploy.ts';

const EntriesSchema = z.object({
  entries: z.array(
    z.object({ name: z.string(), type: z.string(), size: z.number(), mtimeMs: z.number(), mode: z.number() }),
  ),
});

describe('workspace files from the command line', () => {
  let home: TestHome;
  let session: string;
  let local: string;
  beforeAll(async () => {
    home = await TestHome.create();
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('files'))]);
    const made = await home.runJson(['session', 'create', 'files', '--name', 'one']);
    session = z.object({ session: z.object({ id: z.string() }) }).parse(made).session.id;
    local = join(home.projects, 'local');
    await mkdir(join(local, 'sub'), { recursive: true });
    await writeFile(join(local, 'a.txt'), 'hello\n');
    await writeFile(join(local, 'sub', 'run.sh'), '#!/bin/sh\n', { mode: 0o755 });
    await writeFile(join(local, 'big'), randomBytes(9_000_001));
    await symlink('/etc/passwd', join(local, 'link'));
  });
  afterAll(async () => {
    await home.dispose();
  });
  const list = async (path?: string) =>
    EntriesSchema.parse(await home.runJson(['workspace', 'ls', 'one', ...(path === undefined ? [] : [path])]))
      .entries;

  test('a folder is sent, listed, read and removed, though the session has never run', async () => {
    expect(await list()).toEqual([]);
    const sent = await home.runJson(['workspace', 'put', 'one', local, '/workspace/']);
    expect(sent).toEqual({ files: 3, folders: 2, bytes: 9_000_017, skipped: 1 });
    expect((await list('local')).map(({ name, type, size, mode }) => [name, type, size, mode])).toEqual([
      ['a.txt', 'file', 6, 0o644],
      ['big', 'file', 9_000_001, 0o644],
      ['sub', 'directory', expect.any(Number), 0o755],
    ]);
    expect((await list('/workspace/local/sub'))[0]).toMatchObject({ name: 'run.sh', mode: 0o755 });
    expect(await home.runOk(['workspace', 'cat', 'one', 'local/a.txt', '/workspace/local/sub/run.sh'])).toBe(
      'hello\n#!/bin/sh\n',
    );
    const seen = await home.runOk(['exec', 'one', '--', 'sha256sum', '/workspace/local/big']);
    const wanted = createHash('sha256')
      .update(await readFile(join(local, 'big')))
      .digest('hex');
    expect(seen).toBe(`${wanted}  /workspace/local/big\n`);
    const path = join(home.path, 'workspaces', session, 'local/big');
    expect(
      createHash('sha256')
        .update(await readFile(path))
        .digest('hex'),
    ).toBe(wanted);

    const refused = await home.run(['workspace', 'rm', 'one', 'local']);
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringContaining('error directory_not_empty: '),
    ]);
    await home.runOk(['workspace', 'rm', 'one', '-r', 'local']);
    expect(await list()).toEqual([]);
  });

  test('standard input becomes a file, and --no-clobber keeps the one that is there', async () => {
    await home.runOk(['workspace', 'put', 'one', '-', 'note'], 'from a pipe');
    expect(await home.runOk(['workspace', 'cat', 'one', 'note'])).toBe('from a pipe');
    const kept = await home.run(['workspace', 'put', 'one', '-', 'note', '--no-clobber'], 'other');
    expect([kept.code, kept.stderr]).toEqual([1, expect.stringContaining('error file_exists: ')]);
    await home.runOk(['workspace', 'put', 'one', '-', 'note'], 'other');
    expect(await home.runOk(['workspace', 'cat', 'one', 'note'])).toBe('other');
  });

  test.each([
    ['../etc/passwd', 'invalid_params'],
    ['/etc/passwd', 'file_not_found'],
    ['none', 'file_not_found'],
    ['out', 'file_not_found'],
    ['', 'file_is_a_directory'],
  ])('cat %j is %s', async (path, code) => {
    const folder = join(home.path, 'workspaces', session);
    await symlink('/etc/passwd', join(folder, 'out')).catch(() => undefined);
    const { code: exit, stderr, stdout } = await home.run(['workspace', 'cat', 'one', path]);
    const refusal = code === 'invalid_params' ? 2 : 1;
    expect([exit, stderr, stdout]).toEqual([refusal, expect.stringContaining(`error ${code}: `), '']);
  });

  test('names that a terminal would obey are shown escaped, and come back as they were', async () => {
    const folder = join(home.path, 'workspaces', session);
    const names = [
      Buffer.from('caf\xe9', 'latin1'),
      Buffer.from('\x1b[31mred'),
      Buffer.from('\u202egpj.exe'),
    ];
    for (const name of names) await writeFile(Buffer.concat([Buffer.from(`${folder}/`), name]), name);
    const shown = await home.runOk(['workspace', 'ls', 'one']);
    expect(shown).toContain('caf␛e9');
    expect(shown).toContain('\\e[31mred');
    expect(shown).not.toContain('\x1b[31m');
    expect(shown).not.toContain('\u202e');
    for (const { name } of await list()) {
      if (name.includes('red') || name.includes('gpj') || name.includes('caf')) {
        const { code, stdout } = await home.run(['workspace', 'cat', 'one', `/workspace/${name}`]);
        expect([name, code, stdout.length > 0]).toEqual([name, 0, true]);
        await home.runOk(['workspace', 'rm', 'one', `/workspace/${name}`]);
      }
    }
  });

  test('it works whatever the sandbox does: running, paused, its agent killed, stopped, its sidecar killed', async () => {
    const check = async (text: string): Promise<void> => {
      await home.runOk(['workspace', 'put', 'one', '-', 'state'], text);
      expect(await home.runOk(['workspace', 'cat', 'one', 'state'])).toBe(text);
    };
    await home.runOk(['session', 'resume', 'one']);
    await check('running');
    await home.runOk(['session', 'pause', 'one']);
    await check('paused');
    const status = z.object({ session: z.object({ status: z.string() }) });
    expect(status.parse(await home.runJson(['session', 'show', 'one'])).session.status).toBe('paused');
    await home.runOk(['session', 'resume', 'one']);
    await home.killContainer(session, 'agent');
    await check('agent killed');
    await home.runOk(['session', 'stop', 'one']);
    await check('stopped');
    expect(await home.containerId(session, 'agent')).toBeNull();
    await home.killContainer(session, 'sidecar');
    await check('sidecar killed');
  });

  test('and in an expired session, whose sandbox has taken its files along', async () => {
    const project = await writeProject(home.projects, shellProject('brief', 'persistence: ephemeral\n'));
    await home.runOk(['deploy', project]);
    await home.runOk(['session', 'create', 'brief', '--name', 'two']);
    await home.runOk(['session', 'resume', 'two']);
    await home.runOk(['workspace', 'put', 'two', '-', 'state'], 'before');
    await home.runOk(['session', 'stop', 'two']);
    const status = z.object({ session: z.object({ status: z.string() }) });
    expect(status.parse(await home.runJson(['session', 'show', 'two'])).session.status).toBe('expired');
    expect((await home.run(['workspace', 'cat', 'two', 'state'])).code).not.toBe(0);
    await home.runOk(['workspace', 'put', 'two', '-', 'state'], 'after');
    expect(await home.runOk(['workspace', 'cat', 'two', 'state'])).toBe('after');
    expect(status.parse(await home.runJson(['session', 'show', 'two'])).session.status).toBe('expired');
  });
});

test('kill -9 of the supervisor in the middle of an upload: the old content stays, and nothing is left of the new', async () => {
  const home = await FaultHome.create();
  try {
    const supervisor = await home.start();
    const project = await writeProject(join(home.path, '..'), shellProject('upload'));
    await deploy(home, project);
    const { session } = await home.call('session/create', { profile: 'upload' });
    const path = '/workspace/file';
    await home.call('files/write', { session: session.id, path, create: true }, Buffer.from('old'));
    const { upload } = await home.call('files/begin', { session: session.id, path, overwrite: true });
    await home.call('files/append', { session: session.id, upload, offset: 0 }, Buffer.alloc(2 ** 20));
    await supervisor.kill();
    await home.start();
    const folder = join(home.path, 'workspaces', session.id);
    expect(await readFile(join(folder, 'file'), 'utf8')).toBe('old');
    expect(await readdir(folder)).toEqual(['file']);
    const lost = await home
      .call('files/append', { session: session.id, upload, offset: 2 ** 20 })
      .catch((error: unknown) => error);
    expect(lost).toBeInstanceOf(HoldfastError);
    expect((lost as HoldfastError).code).toBe('not_found');
    await home.call('files/write', { session: session.id, path, overwrite: true }, Buffer.from('new'));
    expect(await readFile(join(folder, 'file'), 'utf8')).toBe('new');
    expect((await stat(join(folder, 'file'))).mode & 0o777).toBe(0o644);
    await rm(project, { recursive: true, force: true });
  } finally {
    await home.dispose();
  }
});
