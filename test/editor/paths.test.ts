import { expect, test } from 'vitest';
import { z } from 'zod';
import { TestHome } from '../setup/test-home.ts';
import { handlerProject, writeProject } from '../setup/profiles.ts';
import { failures, runInExtensionHost } from './harness/extension-host.ts';

/** Makes a folder of each name with a file of that name in it, and tells what paths it sees: as text where they are text to it. */
const HANDLER = `
import os

TREE = b"/workspace/paths"


def text(path):
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return None


def handler(request):
    for name in (bytes.fromhex(one) for one in request.get("make", [])):
        os.makedirs(os.path.join(TREE, name))
        with open(os.path.join(TREE, name, name), "w") as file:
            file.write(name.hex())
    if "list" not in request:
        return None
    paths = [os.path.join(at, one) for at, folders, files in os.walk(TREE) for one in folders + files]
    return [{"hex": path.hex(), "text": text(path)} for path in paths]
`;

test('a path is the same string in the editor, the terminal, the handler and a snapshot', async () => {
  const home = await TestHome.create();
  try {
    await home.runOk(['deploy', await writeProject(home.projects, handlerProject('paths', HANDLER))]);
    const { session } = z
      .object({ session: z.object({ id: z.string() }) })
      .parse(await home.runJson(['session', 'create', 'paths']));
    const { outcomes } = await runInExtensionHost({
      name: 'paths',
      open: () => ({ folder: `holdfast://${session.id}/` }),
      suites: ['paths'],
      env: { HOLDFAST_HOME: home.path, HOLDFAST_TEST_SESSION: session.id },
    });
    expect(failures(outcomes)).toBe('');
  } finally {
    await home.dispose();
  }
});
