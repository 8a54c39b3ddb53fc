import { execFile } from 'node:child_process';
import { copyFile, readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { waitUntil } from '../fixtures/sidecar/turns.ts';
import { writeProject } from '../setup/profiles.ts';
import { TestHome } from '../setup/test-home.ts';

const PROGRAMS = resolve(import.meta.dirname, '../../examples/programs');
const AGENT = resolve(import.meta.dirname, '../fixtures/acp-agent/agent.mjs');
const SESSION = 'coder/invoices';
const PermissionsSchema = z.object({ permissions: z.array(z.object({ id: z.string() })) });

let home: TestHome;
beforeAll(async () => {
  home = await TestHome.create();
  const project = await writeProject(home.projects, {
    'holdfast.yaml':
      'name: coder\npersistence: persistent\nworkspace: { seed: false }\n' +
      'agent: { protocol: acp, command: [node, /agent/agent.mjs] }\n',
  });
  await copyFile(AGENT, join(project, 'agent.mjs'));
  await home.runOk(['deploy', project]);
});
afterAll(async () => {
  await home.dispose();
});

const ran = new Set<string>();
async function run(program: string, ...args: string[]): Promise<string> {
  ran.add(program);
  const env = { ...process.env, HOLDFAST_HOME: home.path };
  const { stdout } = await promisify(execFile)(process.execPath, [join(PROGRAMS, program), ...args], { env });
  return stdout;
}

test(
  'a session from its creation to its review, each step with its example program (P6)',
  { timeout: 180_000 },
  async () => {
    expect(await run('create-session.ts', 'coder', 'invoices')).toMatch(/^ses-[a-z2-7]{16}\n$/);
    await home.runOk(['snapshot', 'create', SESSION]);
    expect(await run('prompt.ts', SESSION, 'say Hello\nwrite notes.txt from the agent\nsay  there')).toBe(
      'Hello there\nsucceeded\n',
    );
    expect(await run('read-files.ts', SESSION, '/workspace/notes.txt')).toBe('from the agent');

    const asking = run('prompt.ts', SESSION, 'permission make');
    await waitUntil('the agent asks', async () => {
      const { permissions } = PermissionsSchema.parse(await home.runJson(['permission', 'list', SESSION]));
      return permissions.length === 1;
    });
    expect(await run('answer-permissions.ts', SESSION)).toBe('Run make: Reject\n');
    expect(await asking).toBe('[make: no]\nsucceeded\n');

    expect(await run('snapshots.ts', SESSION, 'write notes.txt , spoilt')).toMatch(
      /^restored snp-[a-z2-7]{16}; snp-[a-z2-7]{16} undoes it\n$/,
    );
    expect(await run('read-files.ts', SESSION, '/workspace/notes.txt')).toBe('from the agent');

    await run('prompt.ts', SESSION, 'write Makefile all:');
    expect(
      (await run('review.ts', SESSION))
        .split('\n')
        .filter((line) => line !== '')
        .toSorted(),
    ).toEqual([
      'accepted: added /workspace/notes.txt',
      expect.stringMatching(/^for a person: added \/workspace\/Makefile ./),
    ]);

    // Each program is run here, or it would rot.
    const programs = (await readdir(PROGRAMS)).filter(
      (name) => name !== 'connect.ts' && name.endsWith('.ts'),
    );
    expect([...ran].toSorted()).toEqual(programs.toSorted());
  },
);
