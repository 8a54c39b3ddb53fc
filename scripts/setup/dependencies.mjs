// node_modules as the lock file says, installed again only when it has changed; and dist/ built from it.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './command.mjs';
import { node24, node24Environment, nodePackage } from './node.mjs';
import { ROOT, SetupError } from './project.mjs';

/** @returns {Promise<boolean>} whether anything had to be installed */
export async function ensureDependencies() {
  if (process.platform !== 'linux' || !['x64', 'arm64'].includes(process.arch)) {
    throw new SetupError(
      `${process.platform} on ${process.arch} is not supported yet`,
      'Use Linux on x64 or arm64 (on Windows: inside WSL 2)',
    );
  }
  if (Number(process.versions.node.split('.')[0]) < 20) {
    throw new SetupError(
      `this is Node ${process.versions.node}`,
      'Install Node 20 or newer; Node 24, which the product needs, is then fetched by itself',
    );
  }
  if (isInstalled()) return false;
  // Engine warnings are about the Node that runs npm, not about the one that runs the product.
  await run('npm', ['ci', '--include=dev', '--include=optional', '--loglevel=error', '--no-progress'], {
    next: 'Make sure that npm can reach its registry and run this again',
  });
  nodePackage();
  return true;
}

/** npm writes down what it has installed, as its last act: so an installation that was interrupted is done again. */
function isInstalled() {
  const wanted = lockedPackages(join(ROOT, 'package-lock.json'));
  const present = lockedPackages(join(ROOT, 'node_modules/.package-lock.json'));
  if (wanted === undefined || present === undefined) return false;
  return (
    Object.keys(present).every((path) => path in wanted) &&
    Object.entries(wanted).every(([path, { integrity, optional }]) => {
      const found = present[path];
      // Packages for other machines are left out, as the root package itself is.
      return path === '' || (found === undefined ? optional === true : found.integrity === integrity);
    })
  );
}

/** @param {string} path @returns {Record<string, { integrity?: string, optional?: boolean }> | undefined} */
function lockedPackages(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8')).packages;
  } catch {
    return undefined; // not installed yet
  }
}

export async function buildProgram() {
  await run(node24(), ['esbuild.mjs'], { env: node24Environment(), next: 'Mend what it names' });
}
