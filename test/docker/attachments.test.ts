import { createHash } from 'node:crypto';
import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { gif, png } from '../fixtures/images.ts';
import { writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const AGENT = resolve(import.meta.dirname, '../fixtures/acp-agent/agent.mjs');
const TurnSchema = z.object({
  sessionId: z.string(),
  turnId: z.string(),
  status: z.string(),
  output: z.json(),
});
const BlocksSchema = z.array(
  z.looseObject({
    type: z.string(),
    uri: z.string().optional(),
    readable: z.union([z.number(), z.string()]).optional(),
  }),
);
const ItemSchema = z.object({
  type: z.string(),
  text: z.string().nullable(),
  attachments: z.json().optional(),
});
const FOLDER = '/run/holdfast/attachments';

describe('what prompts bring along', { timeout: 120_000 }, () => {
  let home: TestHome;
  let files: string;
  const picture = png(20, 30);
  beforeAll(async () => {
    home = await TestHome.create();
    files = join(home.projects, 'files');
    await mkdir(files, { recursive: true });
    await writeFile(join(files, 'shot.png'), picture);
    await writeFile(join(files, 'notes.md'), '# The zebra crossing');
    await writeFile(join(files, 'large.bin'), Buffer.alloc(3_500_000, 7));
    await writeFile(join(files, 'drawing.svg'), '<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>');
    await writeFile(join(files, 'not-a-picture.png'), '<!doctype html>');
  });
  afterAll(async () => {
    await home.dispose();
  });
  const deploy = async (name: string, agent: string, more: Record<string, string> = {}): Promise<void> => {
    const project = await writeProject(home.projects, {
      'holdfast.yaml': `name: ${name}\npersistence: persistent\nworkspace: { seed: false }\nagent: ${agent}\n`,
      ...more,
    });
    await copyFile(AGENT, join(project, 'agent.mjs'));
    await home.runOk(['deploy', project]);
    await home.runOk(['session', 'create', name, '--name', 'default']);
  };
  const agent = (flags: string) =>
    `{ protocol: acp, command: [node, /agent/agent.mjs${flags}], state: [.acp-agent] }`;
  const attached = (...names: string[]) =>
    names.flatMap((name) => ['--attach', name.startsWith('/') ? name : join(files, name)]);
  const prompt = async (profile: string, text: string, ...names: string[]) =>
    TurnSchema.parse(await home.runJson(['prompt', `${profile}/default`, text, ...attached(...names)]));
  const blocks = (turn: z.output<typeof TurnSchema>) =>
    BlocksSchema.parse(JSON.parse(z.string().parse(turn.output)));
  const conversation = async (session: string) =>
    (await home.runOk(['session', 'show', session, '--conversation', '--json']))
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => ItemSchema.parse(JSON.parse(line)));

  test('an agent that takes pictures and texts sees them; everything else is a file that it can read', async () => {
    await deploy('sees', agent(', --image, --embed'));
    const names = [
      'shot.png',
      'notes.md',
      'large.bin',
      'drawing.svg',
      'not-a-picture.png',
      '/workspace/src/a.ts',
    ];
    const turn = await prompt('sees', 'attached', ...names);
    const at = (name: string) => `file://${FOLDER}/${turn.turnId}/${name}`;
    expect(blocks(turn)).toMatchObject([
      {
        type: 'image',
        mimeType: 'image/png',
        data: picture.length,
        uri: at('shot.png'),
        readable: picture.length,
      },
      { type: 'resource', resource: { uri: at('notes.md'), text: '# The zebra crossing' } },
      {
        type: 'resource_link',
        uri: at('large.bin'),
        name: 'large.bin',
        size: 3_500_000,
        readable: 3_500_000,
      },
      { type: 'resource', resource: { uri: at('drawing.svg'), mimeType: 'text/plain' } },
      { type: 'resource', resource: { uri: at('not-a-picture.png'), mimeType: 'text/plain' } },
      { type: 'resource_link', uri: 'file:///workspace/src/a.ts', name: 'a.ts' },
    ]);
    // In the conversation, the search and the verified history.
    const { sessionId } = turn;
    const asked = (await conversation(sessionId)).find(({ type }) => type === 'prompt');
    expect(asked).toMatchObject({ type: 'prompt', text: 'attached' });
    expect(asked?.attachments).toMatchObject([
      { kind: 'image', name: 'shot.png', content: { mediaType: 'image/png' } },
      { kind: 'file', name: 'notes.md' },
      { kind: 'file', name: 'large.bin', content: { bytes: 3_500_000 } },
      { kind: 'file', name: 'drawing.svg' },
      { kind: 'file', name: 'not-a-picture.png' },
      { kind: 'link', path: '/workspace/src/a.ts' },
    ]);
    const shown = await home.runOk(['session', 'show', sessionId, '--conversation']);
    expect(shown).toContain('+ shot.png (image/png, ');
    expect(shown).toContain('+ /workspace/src/a.ts');
    for (const words of ['zebra crossing', 'shot.png'])
      expect(await home.runOk(['session', 'search', words, '--session', sessionId])).toContain('prompt');
    expect(await home.runJson(['session', 'verify', sessionId])).toMatchObject({ ok: true });
    // No event has bytes of a file.
    const events = await home.runOk(['session', 'events', sessionId, '--json']);
    expect(events).not.toContain('zebra');
    expect(events).toContain(createHash('sha256').update(picture).digest('hex'));
  });

  test('an agent that takes neither gets files, also after its run directory was spoiled', async () => {
    await deploy('reads', agent(''));
    const turn = await prompt('reads', 'attached', 'shot.png', 'notes.md');
    expect(blocks(turn)).toMatchObject([
      { type: 'resource_link', name: 'shot.png', mimeType: 'image/png', readable: picture.length },
      { type: 'resource_link', name: 'notes.md', readable: 20 },
    ]);
    for (const spoil of [
      `rm -rf ${FOLDER} && ln -s /workspace ${FOLDER}`,
      `rm -rf ${FOLDER} && touch ${FOLDER}`,
      `chmod 000 ${FOLDER}`,
    ]) {
      await home.runOk(['exec', 'reads/default', '--', 'sh', '-c', spoil]);
      const next = await prompt('reads', 'attached', 'shot.png');
      expect(blocks(next), spoil).toMatchObject([{ readable: picture.length }]);
    }
    expect(await home.runOk(['exec', 'reads/default', '--', 'ls', '-A', '/workspace'])).toBe('');
  });

  test('a command gets paths below its prompt, and a handler a field of its input', async () => {
    await deploy(
      'command',
      '{ protocol: command, command: [sh, -c, "cat; ls /run/holdfast/attachments/*/"], prompt: stdin }',
    );
    const turn = await prompt('command', 'Look at this', 'shot.png', '/workspace/a.txt');
    const { stdout } = await home.run(['turn', 'wait', turn.turnId]);
    expect(stdout).toBe(
      `Look at this\n\nAttached files:\n- ${FOLDER}/${turn.turnId}/shot.png\n- /workspace/a.txt\nshot.png\n`,
    );
    await deploy('handler', '{ protocol: handler, entry: handler.mjs }', {
      'handler.mjs':
        `import { statSync } from 'node:fs';\n` +
        `export const handler = ({ attachments }) => attachments.map((one) => ({ ...one, size: statSync(one.path).size }));\n`,
    });
    const answered = await prompt('handler', '{}', 'shot.png');
    const path = `${FOLDER}/${answered.turnId}/shot.png`;
    expect(answered.output).toEqual([{ name: 'shot.png', path, type: 'image/png', size: picture.length }]);
    const refused = await home.run(['prompt', 'handler/default', '"text"', ...attached('shot.png')]);
    expect(refused.stderr).toContain('which is not an object');
  });

  test('a prompt in the queue keeps, changes and loses its files; kill -9 changes nothing', async () => {
    await deploy('queues', agent(', --image'));
    const start = async (text: string, ...names: string[]) =>
      TurnSchema.parse(
        await home.runJson(['prompt', 'queues/default', text, '--no-wait', ...attached(...names)]),
      );
    const running = await start('sleep 6000');
    const kept = await start('count', 'shot.png');
    const changed = await start('attached', 'shot.png');
    const dropped = await start('attached', 'shot.png');
    await home.runOk(['turn', 'edit', kept.turnId, 'attached']);
    await writeFile(join(files, 'other.gif'), gif(4, 4));
    await home.runOk(['turn', 'edit', changed.turnId, 'attached', ...attached('other.gif')]);
    await home.runOk(['turn', 'edit', dropped.turnId, 'attached', '--without-attachments']);
    process.kill(await home.supervisorPid(), 'SIGKILL');
    const outputs = await Promise.all(
      [kept, changed, dropped].map(async ({ turnId }) => {
        const { stdout } = await home.run(['turn', 'wait', turnId, '--json']);
        return blocks(TurnSchema.parse(JSON.parse(stdout)));
      }),
    );
    expect(outputs).toMatchObject([
      [{ type: 'image', mimeType: 'image/png', readable: picture.length }],
      [{ type: 'image', mimeType: 'image/gif' }],
      [],
    ]);
    expect(await home.runJson(['session', 'verify', running.sessionId])).toMatchObject({ ok: true });
  });

  test('a bundle and a fork take the files along, and they stay when the first session is deleted', async () => {
    await deploy('moves', agent(', --image'));
    const { sessionId } = await prompt('moves', 'attached', 'shot.png', 'notes.md');
    const CreatedSchema = z.object({ id: z.string() });
    const snapshot = CreatedSchema.parse(await home.runJson(['snapshot', 'create', sessionId]));
    const bundle = join(home.projects, 'moves.tar.zst');
    await home.runOk(['snapshot', 'export', sessionId, bundle]);
    await home.runOk(['snapshot', 'import', 'moves', bundle, '--name', 'imported']);
    await home.runOk(['snapshot', 'fork', snapshot.id, '--name', 'forked']);
    await home.runOk(['session', 'delete', sessionId, '--force']);
    for (const copy of ['moves/imported', 'moves/forked']) {
      const asked = (await conversation(copy)).find(({ type }) => type === 'prompt');
      expect(asked?.attachments, copy).toMatchObject([{ name: 'shot.png' }, { name: 'notes.md' }]);
      expect(await home.runJson(['session', 'verify', copy]), copy).toMatchObject({
        ok: true,
        contents: { damaged: [], removed: 0 },
      });
    }
  });

  test('`run` brings files along, into a session that it creates or that passes with its turn', async () => {
    const list = "[sh, -c, 'cat; ls /run/holdfast/attachments/*/; touch made']";
    for (const persistence of ['persistent', 'ephemeral']) {
      const project = await writeProject(home.projects, {
        'holdfast.yaml': `name: ${persistence}\npersistence: ${persistence}\nworkspace: { seed: false }\nagent: { protocol: command, command: ${list}, prompt: stdin }\n`,
      });
      await home.runOk(['deploy', project]);
    }
    const sessions = async (profile: string) =>
      z
        .object({ sessions: z.array(z.object({ name: z.string() })) })
        .parse(await home.runJson(['session', 'list', '--profile', profile]))
        .sessions.map(({ name }) => name);
    for (const more of [[], [], ['--session', 'named']]) {
      const stdout = await home.runOk(['run', 'persistent', 'See', ...attached('shot.png'), ...more]);
      expect(stdout).toMatch(/^See\n\nAttached files:\n- .*\/shot\.png\n[^]*shot\.png\n$/);
    }
    expect((await sessions('persistent')).sort()).toEqual(['default', 'named']);

    expect(await home.runOk(['run', 'ephemeral', 'See', ...attached('shot.png')])).toContain('\nshot.png\n');
    const keeping = ['run', 'ephemeral', 'See', ...attached('shot.png'), '--artifact'];
    expect(await home.runJson([...keeping, 'made'])).toMatchObject({ artifact: { files: 1 } });
    expect(await sessions('ephemeral')).toEqual([]);
    // Nothing is left of what could not begin either.
    for (const [input, more, why] of [
      ['See', ['--no-wait'], 'needs --session'],
      ['See', attached('missing.png'), 'there is no such file'],
    ] as const) {
      const { code, stderr } = await home.run(['run', 'ephemeral', input, ...attached('shot.png'), ...more]);
      expect(code).not.toBe(0);
      expect(stderr).toContain(why);
    }
    expect(await sessions('ephemeral')).toEqual([]);
    // What was not kept stays, as without attachments.
    const unkept = await home.run([...keeping, 'missing']);
    expect(unkept.stderr).toContain('stays, with its files');
    expect(await sessions('ephemeral')).toHaveLength(1);
  });

  test('what cannot be attached is refused before a turn begins', async () => {
    await deploy('refuses', agent(''));
    await writeFile(join(files, 'huge.bin'), Buffer.alloc(10 * 2 ** 20 + 1));
    for (const [name, why] of [
      ['missing.png', 'there is no such file'],
      ['.', 'it is a folder'],
      ['huge.bin', 'the maximum is 10'],
      ['/dev/zero', 'it is not a regular file'],
      ['/workspace/../etc/passwd', 'it contains the name ..'],
    ] as const) {
      const { code, stderr } = await home.run(['prompt', 'refuses/default', 'Look', ...attached(name)]);
      expect(code, name).not.toBe(0);
      expect(stderr).toContain(why);
    }
    const { stderr } = await home.run(['prompt', 'refuses/default', ...attached('shot.png')]);
    expect(stderr).toContain('a text is missing');
    expect(await home.runJson(['turn', 'list', 'refuses/default'])).toEqual({ turns: [] });
  });
});
