import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { shellProject, writeProject } from '../setup/profiles.ts';
import { failures, runInExtensionHost } from './harness/extension-host.ts';
import { marksFolder } from './hostile.ts';

test('no feature of VS Code uses paths of a session’s window as paths of this machine', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, shellProject('shell'))]);
    const { session } = z
      .object({ session: z.object({ id: z.string() }) })
      .parse(await home.runJson(['session', 'create', 'shell']));
    const marks = await marksFolder(home.projects);
    // What VS Code would start on this machine says so.
    const programs = await writeProject(home.projects, {});
    for (const name of ['npm', 'npx', 'yarn', 'pnpm', 'bun', 'gulp', 'grunt', 'jake', 'tsc', 'php']) {
      const program = join(programs, name);
      await writeFile(program, `#!/bin/sh\ntouch ${join(marks, name)}\n`);
      await chmod(program, 0o755);
    }
    const { outcomes } = await runInExtensionHost({
      name: 'host-paths',
      open: () => ({ folder: `holdfast://${session.id}/` }),
      suites: ['host-paths'],
      env: {
        HOLDFAST_HOME: home.path,
        HOLDFAST_TEST_SESSION: session.id,
        HOLDFAST_TEST_MARKS: marks,
        PATH: `${programs}:${process.env['PATH'] ?? ''}`,
      },
    });
    expect(failures(outcomes)).toBe('');
  } finally {
    await home.dispose();
  }
});
