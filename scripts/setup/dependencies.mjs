// node_modules as the lock file says, installed anew only when it has changed; and dist/ built from it.
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { run } from './command.mjs';
import { node24, node24Environment, nodePackage } from './node.mjs';
import { ROOT, SetupError } from './project.mjs';

const STAMP = join(ROOT, 'node_modules/.cache/holdfast-lock');

/** @returns {Promise<boolean>} whether anything had to be installed */
export async function ensureDependencies() {
  if (process.platform !== 'linux' || !['x64', 'arm64'].includes(process.arch)) {
    throw new SetupError(
      `${process.platform} on ${process.arch} is not supported yet`,
      'Use Linux on x64 or arm64 (on Windows: inside WSL 2)',
    );
  }
  const lock = createHash('sha256')
    .update(readFileSync(join(ROOT, 'package-lock.json')))
    .digest('hex');
  if (stamp() === `${lock} ${process.arch}` && existsSync(join(ROOT, 'node_modules/.bin/node'))) return false;
  // Engine warnings are about the Node that runs npm, not about the one that runs the product.
  await run('npm', ['ci', '--include=dev', '--include=optional', '--loglevel=error', '--no-progress'], {
    next: 'Make sure that npm can reach its registry and run this again',
  });
  nodePackage();
  mkdirSync(dirname(STAMP), { recursive: true });
  // Last: an installation that was interrupted is done again.
  writeFileSync(STAMP, `${lock} ${process.arch}`);
  return true;
}

function stamp() {
  try {
    return readFileSync(STAMP, 'utf8');
  } catch {
    return undefined; // never installed by us
  }
}

export async function buildProgram() {
  await run(node24(), ['esbuild.mjs'], { env: node24Environment(), next: 'Mend what it names' });
}
