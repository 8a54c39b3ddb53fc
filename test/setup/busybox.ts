import { existsSync } from 'node:fs';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import Docker from 'dockerode';
import { z } from 'zod';
import { imageFile } from './image-file.ts';

const DIST = join(import.meta.dirname, '../../dist');
const ImagesSchema = z.object({ sidecar: z.string() });

/**
 * Before the unit tests: what the runner is made of. Where this machine has none of its own it is taken out of the sidecar's image; where
 * there is neither, the tests that need one are skipped, and their titles say so.
 */
export default async function setup(): Promise<void> {
  const places = (process.env['PATH'] ?? '').split(delimiter).map((place) => join(place, 'busybox'));
  const own = process.env['HOLDFAST_BUSYBOX'] ?? places.find((place) => existsSync(place));
  const path = own ?? (await busyboxOfImage().catch(() => null));
  // Workers of the test runner are started later and inherit it.
  if (path !== null) process.env['HOLDFAST_BUSYBOX'] = path;
}

/** Path of the busybox in the sidecar's image, taken out of it once for each image. Fails where there is no engine that has it. */
export async function busyboxOfImage(): Promise<string> {
  const { sidecar } = ImagesSchema.parse(JSON.parse(await readFile(join(DIST, 'images.json'), 'utf8')));
  const folder = join(DIST, 'test', sidecar.replaceAll(/[^a-z0-9]/g, '-'));
  const path = join(folder, 'busybox');
  if (existsSync(path)) return path;
  const bytes = await imageFile(new Docker({ timeout: 5000 }), sidecar, '/bin/busybox');
  await mkdir(folder, { recursive: true });
  // By its name once it is whole: another run may look for it meanwhile.
  const incoming = join(folder, `incoming-${String(process.pid)}`);
  await writeFile(incoming, bytes, { mode: 0o755 });
  await rename(incoming, path);
  return path;
}
