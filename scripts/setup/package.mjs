// The .vsix, from what stands in dist/.
import { join } from 'node:path';
import { run } from './command.mjs';
import { node24, node24Environment } from './node.mjs';
import { ROOT } from './project.mjs';

/** @param {string} out path of the file to write @returns {Promise<string>} that path */
export async function packageExtension(out) {
  const vsce = join(ROOT, 'node_modules/@vscode/vsce/vsce');
  // Everything is in the bundles: node_modules stay behind.
  const args = [
    'package',
    '--no-dependencies',
    '--allow-missing-repository',
    '--no-rewrite-relative-links',
    '--out',
    out,
  ];
  await run(node24(), [vsce, ...args], { env: node24Environment(), next: 'Mend what it names' });
  return out;
}
