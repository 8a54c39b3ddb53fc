import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { z } from 'zod';
import type { Site } from '../egress-harness/origin.ts';

const PackedSchema = z.tuple([
  z.looseObject({ filename: z.string(), integrity: z.string(), name: z.string(), version: z.string() }),
]);
const ManifestSchema = z.looseObject({ name: z.string(), version: z.string() });

/**
 * An npm registry at `/npm/` that has these packages (`NAME@VERSION`) and no others, as the npm of this machine gets them.
 * `folder` gets their archives.
 */
export async function packageMirror(packages: readonly string[], folder: string): Promise<Site> {
  const answers = new Map<string, { type: string; body: (url: URL) => string | Buffer }>();
  for (const wanted of packages) {
    const [packed] = PackedSchema.parse(JSON.parse(await npm(['pack', '--json', wanted], folder)));
    const manifest = ManifestSchema.parse(JSON.parse(await npm(['view', '--json', wanted], folder)));
    const { name, version } = packed;
    const archive = await readFile(join(folder, packed.filename));
    const file = `/npm/${name}/-/${version}.tgz`;
    answers.set(file, { type: 'application/octet-stream', body: () => archive });
    answers.set(`/npm/${name.replace('/', '%2f')}`, {
      type: 'application/json',
      body: (url) => {
        const dist = { tarball: new URL(file, url).href, integrity: packed.integrity };
        return JSON.stringify({
          name,
          'dist-tags': { latest: version },
          versions: { [version]: { ...manifest, dist } },
        });
      },
    });
  }
  return (_request, url, response) => {
    const answer = answers.get(url.pathname);
    if (answer === undefined) return false;
    response.setHeader('Content-Type', answer.type);
    response.end(answer.body(url));
    return true;
  };
}

async function npm(args: readonly string[], folder: string): Promise<string> {
  const { stdout } = await promisify(execFile)('npm', [...args], { cwd: folder, maxBuffer: 64 * 2 ** 20 });
  return stdout;
}
