// Node 24, which comes as an npm package: the machine's own may be older.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, SetupError } from './project.mjs';

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

/** The Node that runs the product and its tools, whichever runs this script. */
export function node24() {
  if (Number(process.versions.node.split('.')[0]) >= 24) return process.execPath;
  return join(nodePackage(), 'bin/node');
}

/** The environment in which `node` is Node 24. */
export function node24Environment() {
  return { ...process.env, PATH: `${join(ROOT, 'node_modules/.bin')}:${process.env['PATH'] ?? ''}` };
}
