import { execFile } from 'node:child_process';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import type { Site } from '../egress-harness/origin.ts';

const ManifestSchema = z.looseObject({
  version: z.string(),
  integrity: z.string(),
  /** Only where it is not the last part of its path. */
  name: z.string().optional(),
  os: z.array(z.string()).optional(),
  cpu: z.array(z.string()).optional(),
  libc: z.array(z.string()).optional(),
});
const LockSchema = z.object({
  packages: z.record(z.string(), z.looseObject({})).transform(({ '': _root, ...packages }) => packages),
});
const PackedSchema = z.array(
  z.looseObject({ filename: z.string(), name: z.string(), version: z.string(), integrity: z.string() }),
);

/**
 * An npm registry at `/npm/` that has these packages (`NAME@VERSION`), what they need on this system, and nothing else, as the npm of
 * this machine gets them. `folder` gets their archives.
 */
export async function packageMirror(packages: readonly string[], folder: string): Promise<Site> {
  const own = join(folder, 'needed');
  await mkdir(own);
  await writeFile(join(own, 'package.json'), '{}');
  await npm(['install', '--package-lock-only', '--omit-lockfile-registry-resolved=false', ...packages], own);
  const lock = LockSchema.parse(JSON.parse(await readFile(join(own, 'package-lock.json'), 'utf8')));
  const needed = Object.entries(lock.packages).flatMap(([path, given]) => {
    const manifest = ManifestSchema.parse(given);
    const name = manifest.name ?? path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
    return runsHere(manifest) ? [{ ...manifest, name }] : [];
  });
  const wanted = [...new Set(needed.map(({ name, version }) => `${name}@${version}`))];
  const packed = PackedSchema.parse(JSON.parse(await npm(['pack', '--json', ...wanted], folder)));
  const archives = new Map(packed.map((one) => [`${one.name}@${one.version}`, join(folder, one.filename)]));
  return (_request, url, response) => {
    const [, name = '', version] =
      /^\/npm\/((?:@[^/]+\/)?[^/@]+)(?:\/-\/(.+)\.tgz)?$/.exec(decodeURIComponent(url.pathname)) ?? [];
    if (version !== undefined) {
      const archive = archives.get(`${name}@${version}`);
      if (archive === undefined) return false;
      void readFile(archive).then((bytes) => response.end(bytes));
      return true;
    }
    const versions = needed.filter((one) => one.name === name);
    const [newest] = versions;
    if (newest === undefined) return false;
    response.setHeader('Content-Type', 'application/json');
    const described = versions.map(({ integrity, ...manifest }) => {
      const tarball = new URL(`/npm/${name}/-/${manifest.version}.tgz`, url).href;
      return [manifest.version, { ...manifest, dist: { tarball, integrity } }] as const;
    });
    const tags = { latest: newest.version };
    response.end(JSON.stringify({ name, 'dist-tags': tags, versions: Object.fromEntries(described) }));
    return true;
  };
}

function runsHere({ os, cpu, libc }: z.infer<typeof ManifestSchema>): boolean {
  return has(os, 'linux') && has(cpu, process.arch) && has(libc, 'glibc');
}

function has(listed: readonly string[] | undefined, own: string): boolean {
  return listed === undefined || listed.includes(own);
}

async function npm(args: readonly string[], folder: string): Promise<string> {
  const { stdout } = await promisify(execFile)('npm', [...args], { cwd: folder, maxBuffer: 64 * 2 ** 20 });
  return stdout;
}
