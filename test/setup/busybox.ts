import { existsSync } from 'node:fs';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import Docker from 'dockerode';
import { z } from 'zod';
import { imageFile } from './image-file.ts';

const DIST = join(import.meta.dirname, '../../dist');
const ImagesSchema = z.object({ sidecar: z.string() });

/**
 * Before the processes tests: finds the busybox that the runner needs, on this machine or else in the sidecar's image. Without either, the
 * tests that need it are skipped, and their titles say so.
 */
export default async function setup(): Promise<void> {
  const places = (process.env['PATH'] ?? '').split(delimiter).map((place) => join(place, 'busybox'));
  const own = process.env['HOLDFAST_BUSYBOX'] ?? places.find((place) => existsSync(place));
  const path = own ?? (await busyboxOfImage().catch(() => null));
  // The workers of the test runner start later and inherit it.
  if (path !== null) process.env['HOLDFAST_BUSYBOX'] = path;
}

/** Copies busybox out of the sidecar's image, once per image, and returns its path. Fails without an engine that has the image. */
export async function busyboxOfImage(): Promise<string> {
  const { sidecar } = ImagesSchema.parse(JSON.parse(await readFile(join(DIST, 'images.json'), 'utf8')));
  const folder = join(DIST, 'test', sidecar.replaceAll(/[^a-z0-9]/g, '-'));
  const path = join(folder, 'busybox');
  if (existsSync(path)) return path;
  const bytes = await imageFile(new Docker({ timeout: 5000 }), sidecar, '/bin/busybox');
  await mkdir(folder, { recursive: true });
  // Renamed when it is complete: another run may look for it at the same time.
  const incoming = join(folder, `incoming-${String(process.pid)}`);
  await writeFile(incoming, bytes, { mode: 0o755 });
  await rename(incoming, path);
  return path;
}
