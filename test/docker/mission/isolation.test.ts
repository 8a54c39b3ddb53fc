import { copyFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { SnapshotSchema } from '../../../protocol/snapshots.ts';
import { shellProject, writeProject } from '../../setup/profiles.ts';
import { TestHome } from '../../setup/test-home.ts';

const AGENT = resolve(import.meta.dirname, '../../fixtures/acp-agent/agent.mjs');
const InfoSchema = z.object({ path: z.string() });
/** What the history, the files and the label of the one session say, and the other must not see. */
const PRIVATE = 'private-of-the-first-tenant';

describe('tenants and the platform’s own tests (G8, G11)', () => {
  let home: TestHome;
  beforeAll(async () => {
    home = await TestHome.create();
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('tenants'))]);
  });
  afterAll(async () => {
    await home.dispose();
  });
  const run = (session: string, script: string): Promise<string> =>
    home.runOk(['run', 'tenants', script, '--session', session]);
  const snapshots = async (session: string) =>
    z.object({ snapshots: z.array(SnapshotSchema) }).parse(await home.runJson(['snapshot', 'list', session]))
      .snapshots;
  const snapshot = async (session: string, label: string): Promise<string> =>
    SnapshotSchema.parse(await home.runJson(['snapshot', 'create', session, '--label', label])).id;

  test('G8: files, shell history, object paths and snapshots of one session are in no other, nor in a later sandbox', async () => {
    await run(
      'first',
      `echo ${PRIVATE} > file; echo "export KEY=${PRIVATE}" >> ~/.bash_history; echo ${PRIVATE} > /tmp/note`,
    );
    const theirs = await snapshot('first', PRIVATE);
    const everything = [
      'grep -rsl PRIVATE / --include=* --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev',
      'cat /proc/*/environ /proc/*/cmdline /proc/*/mountinfo 2>/dev/null; find / -xdev -name "*store*" -o -name "snp-*" -o -name "ses-*" 2>/dev/null | grep -v "^/usr\\|^/proc\\|^/sys\\|^/opt"',
      'cat ~/.bash_history; ls -A /tmp /workspace; true',
    ].join('; ');
    // The script has the word in two parts, so that it does not find itself.
    const look = everything.replaceAll(
      'PRIVATE',
      `"$(printf %s%s ${PRIVATE.slice(0, 9)} ${PRIVATE.slice(9)})"`,
    );
    expect(await run('first', look)).toContain('/workspace/file');
    const seen = await run('second', look);
    for (const trace of [PRIVATE, '/workspace/file', theirs, await idOf('first')])
      expect(seen).not.toContain(trace);

    // Nor does a session with the same name, made after this one is gone.
    await home.runOk(['session', 'delete', 'tenants/first', '--force']);
    const after = await run('first', `${look}; ls -A ~`);
    expect(after).not.toContain(PRIVATE);
    expect((await snapshots('tenants/first')).map(({ id }) => id)).not.toContain(theirs);
  });

  test('G8: what an agent asks of Holdfast is answered about its own session alone', async () => {
    const project = await writeProject(home.projects, {
      'holdfast.yaml':
        'name: asking\npersistence: persistent\nworkspace: { seed: false }\n' +
        'agent: { protocol: acp, command: [node, /agent/agent.mjs] }\npermissions: allow\n',
    });
    await copyFile(AGENT, join(project, 'agent.mjs'));
    await home.runOk(['deploy', project]);
    const ask = (session: string, tool: string, input: unknown): Promise<string> =>
      home.runOk(['run', 'asking', `tool-of ${tool} ${JSON.stringify(input)}`, '--session', session]);
    expect(await ask('first', 'snapshot_create', { label: PRIVATE })).toContain(PRIVATE);
    const [theirs] = (await snapshots('asking/first')).filter(({ label }) => label === PRIVATE);
    expect(await ask('first', 'snapshot_list', {})).toContain(theirs?.id);
    const listed = await ask('second', 'snapshot_list', {});
    expect(listed).toContain('"snapshots":');
    expect(listed).not.toContain(theirs?.id);
    expect(listed).not.toContain(PRIVATE);
    const refused = await ask('second', 'snapshot_diff', { from: theirs?.id });
    expect(refused).toContain(`There is no snapshot ${theirs?.id}`);
    expect(await ask('second', 'history_search', { query: PRIVATE })).not.toContain(theirs?.id);
  });

  test('G11: pausing and resuming three times loses nothing; restore, fork and cleanup do what they say', async () => {
    await run('cycle', 'mkdir d; echo 0 > d/count; (setsid sh -c "while :; do sleep 1; done" &)');
    for (const step of [1, 2, 3]) {
      await home.runOk(['session', 'pause', 'tenants/cycle']);
      await home.runOk(['session', 'resume', 'tenants/cycle']);
      expect(await run('cycle', `echo $(( $(cat d/count) + 1 )) > d/count; cat d/count`)).toBe(`${step}\n`);
    }
    // The same file from every surface: the agent, a command, the client's files, the disk, a snapshot.
    const { path } = InfoSchema.parse(await home.runJson(['workspace', 'info', 'tenants/cycle']));
    expect(path.startsWith(home.path)).toBe(true);
    expect(await home.runOk(['exec', 'tenants/cycle', '--', 'cat', '/workspace/d/count'])).toBe('3\n');
    expect(await home.runOk(['workspace', 'cat', 'tenants/cycle', 'd/count'])).toBe('3\n');
    const kept = await snapshot('tenants/cycle', 'three');
    expect(await home.runOk(['workspace', 'cat', 'tenants/cycle', 'd/count', '--snapshot', kept])).toBe(
      '3\n',
    );

    await run('cycle', 'rm -r d; echo new > other');
    await home.runOk(['snapshot', 'fork', kept, '--name', 'branch']);
    expect(await home.runOk(['prompt', 'tenants/branch', 'ls; cat d/count; echo 4 > d/count'])).toBe(
      'd\n3\n',
    );
    await home.runOk(['snapshot', 'restore', 'tenants/cycle', kept]);
    expect(await run('cycle', 'ls; cat d/count')).toBe('d\n3\n');
    expect(await home.runOk(['workspace', 'cat', 'tenants/branch', 'd/count'])).toBe('4\n');

    await home.runOk(['workspace', 'clean', 'tenants/cycle', '--force']);
    expect(await run('cycle', 'ls -A | wc -l')).toBe('0\n');
    await home.runOk(['session', 'delete', 'tenants/cycle', '--force']);
    expect(await home.runOk(['workspace', 'cat', 'tenants/branch', 'd/count'])).toBe('4\n');
    expect((await home.run(['workspace', 'cat', 'tenants/cycle', 'd/count'])).stderr).toMatch(
      /^error not_found: /m,
    );
  });

  async function idOf(session: string): Promise<string> {
    return z
      .object({ session: z.object({ id: z.string() }) })
      .parse(await home.runJson(['session', 'show', `tenants/${session}`])).session.id;
  }
});
