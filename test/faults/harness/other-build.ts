import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { BUNDLE } from './fault-home.ts';

/**
 * The built program as if it came from another version: the same code with another version, build and time written into it.
 * Gives the path of its bundle in `folder`.
 */
export async function otherBuild(folder: string, version: string, time: string): Promise<string> {
  const dist = join(BUNDLE, '..');
  const original = await readFile(BUNDLE, 'utf8');
  const build = version.replaceAll(/\D/g, '').padEnd(16, '0').slice(0, 16);
  const changed = original
    .replaceAll(JSON.stringify(__VERSION__), JSON.stringify(version))
    .replaceAll(__BUILD_ID__, build)
    .replaceAll(__BUILD_TIME__, time);
  if (changed === original)
    throw new Error('the bundle does not hold this build: it was built again meanwhile');
  await mkdir(folder, { recursive: true });
  await cp(join(dist, 'runtime'), join(folder, 'runtime'), { recursive: true });
  const bundle = join(folder, 'holdfast.cjs');
  await writeFile(bundle, changed);
  return bundle;
}
