// Node 24, which comes as an npm package: the machine's own may be older.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { onPath, run } from './command.mjs';
import { ROOT, SetupError, manifest } from './project.mjs';

/** The installed npm package that holds Node for this machine. */
export function nodePackage() {
  const path = join(ROOT, 'node_modules', `node-linux-${process.arch}`);
  if (!existsSync(join(path, 'bin/node'))) {
    throw new SetupError(
      `there is no Node 24 for ${process.platform}-${process.arch} in node_modules`,
      'Run "npm ci --include=optional"; Linux on x64 and arm64 is supported',
    );
  }
  return path;
}

/**
 * A package as the registry that npm on this machine uses has it.
 * @param {string} name with its version @param {string} folder where to put it @returns {Promise<string>} path of the tarball
 */
export async function fetchPackage(name, folder) {
  if (onPath('npm') === undefined) {
    throw new SetupError(
      `${name} is missing, and there is no npm on PATH to fetch it with`,
      'Install Node 24 with npm, or name a registry that has the images (HOLDFAST_REGISTRY)',
    );
  }
  await run('npm', ['pack', '--loglevel=error', '--pack-destination', folder, name], {
    missing: name,
    next: 'Make sure that npm can reach its registry, or name one that has the images (HOLDFAST_REGISTRY)',
  });
  return join(folder, `${name.replace('@', '-')}.tgz`);
}

/**
 * The Node that goes into the images: the installed one, or where nothing is installed (in the package) the same from npm's registry.
 * @param {string} folder for what has to be fetched @returns {Promise<string>} path of the program
 */
export async function nodeForImages(folder) {
  if (existsSync(join(ROOT, 'node_modules'))) return join(nodePackage(), 'bin/node');
  const name = `node-linux-${process.arch}`;
  const version = manifest().optionalDependencies[name];
  const { node } = JSON.parse(readFileSync(join(ROOT, 'dist/images.json'), 'utf8'));
  const integrity = node[name];
  if (process.platform !== 'linux' || version === undefined || typeof integrity !== 'string') {
    throw new SetupError(
      `the images cannot be built on ${process.platform} with ${process.arch}`,
      'Use Linux on x64 or arm64, or name a registry that has them (HOLDFAST_REGISTRY)',
    );
  }
  const tarball = await fetchPackage(`${name}@${version}`, folder);
  const found = `sha512-${createHash('sha512').update(readFileSync(tarball)).digest('base64')}`;
  if (found !== integrity) {
    throw new SetupError(
      `${name}@${version} is not what was published: its checksum is ${found}`,
      'Use another registry; this one may have been tampered with',
    );
  }
  await run('tar', ['-xzf', tarball, '-C', folder, 'package/bin/node']);
  return join(folder, 'package/bin/node');
}

/** The Node that runs the product and its tools, whichever runs this script. */
export function node24() {
  if (Number(process.versions.node.split('.')[0]) >= 24) return process.execPath;
  return join(nodePackage(), 'bin/node');
}

/** The environment in which `node` is Node 24. */
export function node24Environment() {
  return { ...process.env, PATH: `${join(ROOT, 'node_modules/.bin')}:${process.env['PATH'] ?? ''}` };
}
