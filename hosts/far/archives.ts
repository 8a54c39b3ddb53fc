import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import { pack } from 'tar-stream';
import { z } from 'zod';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Architecture } from './survey.ts';

export interface Archive {
  /** A compressed tar. */
  readonly bytes: Buffer;
  readonly sha256: string;
}

/** The program's own files below `dist/`; the editor's part and the source maps stay here. */
const PROGRAM_FILES = /^(?:[a-z-]+\.cjs|images\.json|build\.json|setup\/[a-z]+\.cjs|runtime\/[^/]+)$/;
const NEAR_ONLY = /^extension|\.map$/;

function isProgramFile(name: string): boolean {
  return PROGRAM_FILES.test(name) && !NEAR_ONLY.test(name);
}

/**
 * The program, and the recipes of its images, laid out as here. `directory`: where its bundle is, `dist/`; the rest is
 * beside that.
 */
export async function programArchive(directory: string): Promise<Archive> {
  const root = join(directory, '..');
  const names = ['dist/', 'dist/setup/', 'dist/runtime/', 'images/sidecar/', 'images/agent/']
    .flatMap((folder) =>
      readdirSync(join(root, folder), { withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => folder + entry.name),
    )
    .filter((name) => name.startsWith('images/') || isProgramFile(name.slice('dist/'.length)))
    .concat('package.json')
    .sort();
  const tar = pack();
  for (const name of names) {
    const isGuest = /^dist\/runtime\/.*(?<!\.cjs|\.node)$/.test(name);
    const mode = isGuest ? 0o755 : 0o644;
    tar.entry({ name, mode, mtime: new Date(0) }, readFileSync(join(root, name)));
  }
  tar.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of tar) chunks.push(chunk as Buffer);
  return archive(gzipSync(Buffer.concat(chunks), { level: 6 }));
}

const ImagesSchema = z.object({ node: z.record(z.string(), z.string().nullish()) });
const run = promisify(execFile);

export interface NodeSource {
  /** Where the bundle of the program is: `images.json` there has the checksums. */
  readonly program: string;
  /** Tarballs that were fetched before. */
  readonly cache: string;
  /** Such as `24.21.0`. */
  readonly version: string;
}

/**
 * Node for another machine: npm's package of it, from the registry that npm here uses, checked against the checksum in
 * our build and kept for the next time. Errors: `not_found` where it cannot be had.
 */
export async function nodeArchive(source: NodeSource, architecture: Architecture): Promise<Archive> {
  const name = `node-linux-${architecture}`;
  const images = ImagesSchema.parse(JSON.parse(readFileSync(join(source.program, 'images.json'), 'utf8')));
  const integrity = images.node[name];
  const what = `Node ${source.version} for ${architecture} cannot be fetched`;
  if (typeof integrity !== 'string')
    throw new HoldfastError('not_supported', what, {
      why: 'this build knows no checksum for it',
      next: 'install Node 24 on that machine',
    });
  const file = join(source.cache, `${name}-${source.version}.tgz`);
  const isRight = (bytes: Buffer): boolean =>
    `sha512-${createHash('sha512').update(bytes).digest('base64')}` === integrity;
  if (existsSync(file)) {
    const bytes = readFileSync(file);
    if (isRight(bytes)) return archive(bytes);
  }
  mkdirSync(source.cache, { recursive: true, mode: 0o700 });
  const work = mkdtempSync(join(source.cache, '.fetch-'));
  try {
    const given = ['pack', '--loglevel=error', '--pack-destination', work, `${name}@${source.version}`];
    await run('npm', given, { cwd: work, timeout: 300_000 });
    const [tarball] = readdirSync(work);
    if (tarball === undefined) throw new Error('npm wrote no file');
    const bytes = readFileSync(join(work, tarball));
    if (!isRight(bytes)) throw new Error('its checksum is not the one that was published');
    renameSync(join(work, tarball), file);
    return archive(bytes);
  } catch (cause) {
    throw new HoldfastError('not_found', what, {
      why: reasonOf(cause),
      next: 'install Node 24 on that machine, or npm and a registry here',
      cause,
    });
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** The line in which npm says why, or the first one. */
function reasonOf(cause: unknown): string {
  const lines = (cause instanceof Error ? cause.message : String(cause)).split('\n');
  const ofNpm = lines.find((line) =>
    /^npm error .*(failed, reason|No matching version|40[134]|E[A-Z]+)/.test(line),
  );
  return (ofNpm ?? lines[0] ?? '').replace(/^npm error /, '').slice(0, 300);
}

function archive(bytes: Buffer): Archive {
  return { bytes, sha256: createHash('sha256').update(bytes).digest('hex') };
}
