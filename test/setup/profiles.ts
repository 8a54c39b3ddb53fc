import { mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** Writes a project into a new folder below `under`, which the test removes, and returns its path. */
export async function writeProject(under: string, files: Readonly<Record<string, string>>): Promise<string> {
  await mkdir(under, { recursive: true });
  const folder = await mkdtemp(join(under, 'project-'));
  for (const [name, text] of Object.entries(files)) {
    const path = join(folder, name);
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, text);
  }
  return folder;
}

/** Most tests expect an empty workspace at the start. A test that sets `workspace:` sets all of it. */
function emptyUnlessSaid(more: string): string {
  return more.includes('workspace:') ? more : `${more}workspace: { seed: false }\n`;
}

/** A project with a Python handler; `body` is its program. */
export function handlerProject(name: string, body: string, more = ''): Record<string, string> {
  return {
    'holdfast.yaml': `name: ${name}\nagent: { protocol: handler, entry: agent.py }\npersistence: persistent\n${emptyUnlessSaid(more)}`,
    'agent.py': body,
  };
}

/** A project with a command agent that runs its prompt as a shell script. */
export function shellProject(name: string, more = 'persistence: persistent\n'): Record<string, string> {
  return {
    'holdfast.yaml': `name: ${name}\nagent: { protocol: command, command: [sh] }\n${emptyUnlessSaid(more)}`,
  };
}
