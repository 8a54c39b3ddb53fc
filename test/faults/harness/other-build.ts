import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { BUNDLE } from './fault-home.ts';

const BuildSchema = z.object({ version: z.string(), id: z.string(), time: z.string() });

/**
 * The built program as if it came from another version: the same code with another version, build and time written into it.
 * Gives the path of its bundle in `folder`.
 */
export async function otherBuild(folder: string, version: string, time: string): Promise<string> {
  const dist = join(BUNDLE, '..');
  const original = await readFile(BUNDLE, 'utf8');
  const built = BuildSchema.parse(JSON.parse(await readFile(join(dist, 'build.json'), 'utf8')));
  const build = version.replaceAll(/\D/g, '').padEnd(16, '0').slice(0, 16);
  const changed = original
    .replaceAll(JSON.stringify(built.version), JSON.stringify(version))
    .replaceAll(built.id, build)
    .replaceAll(built.time, time);
  if (changed === original)
    throw new Error('the bundle does not hold this build: it was built again meanwhile');
  await mkdir(folder, { recursive: true });
  await cp(join(dist, 'runtime'), join(folder, 'runtime'), { recursive: true });
  const bundle = join(folder, 'holdfast.cjs');
  await writeFile(bundle, changed);
  return bundle;
}
