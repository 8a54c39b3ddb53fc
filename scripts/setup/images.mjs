// Our two images on the engine: there already, pulled from a registry of your choice, or built here from Debian packages.
import { createReadStream, existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onPath, run } from './command.mjs';
import { canInstall, install, isDebian } from './debian.mjs';
import { fetchPackage, nodeForImages } from './node.mjs';
import { SetupError, reasonOf } from './project.mjs';
import { minimalRecipe, recipes } from './recipes.mjs';

/** npm for the agent image; its tarball comes from the registry that npm on this machine uses. */
const NPM = 'npm@11.19.1';

/**
 * @param {import('./docker-api.mjs').DockerApi} api @param {import('./progress.mjs').Step} step
 * @param {{ minimal?: boolean }} options `minimal`: the small variant of the agent image as well
 * @returns {Promise<string[]>} what was done for each image
 */
export async function ensureImages(api, step, { minimal = false } = {}) {
  const done = [];
  for (const recipe of [...Object.values(recipes()), ...(minimal ? [minimalRecipe()] : [])]) {
    done.push(`${recipe.reference} ${await ensureImage(api, recipe, step)}`);
    // Each time: another checkout may have moved it to an image of its own.
    if (recipe.stable !== null) await api.tag(recipe.reference, recipe.stable);
  }
  return done;
}

/**
 * @param {import('./docker-api.mjs').DockerApi} api @param {import('./recipes.mjs').Recipe} recipe
 * @param {import('./progress.mjs').Step} step
 */
async function ensureImage(api, recipe, step) {
  if (await api.hasImage(recipe.reference)) return 'there';
  if (await pull(api, recipe, step)) return 'pulled';
  await buildHere(api, recipe, step);
  return 'built';
}

/**
 * There is no default registry: nothing is published yet, and a name that is not ours could be anybody's.
 * @param {import('./docker-api.mjs').DockerApi} api @param {import('./recipes.mjs').Recipe} recipe
 * @param {import('./progress.mjs').Step} step
 */
async function pull(api, recipe, step) {
  const registry = process.env['HOLDFAST_REGISTRY'];
  if (registry === undefined || registry === '') {
    step.note(
      `no registry is set (HOLDFAST_REGISTRY): building ${recipe.reference} here from Debian packages`,
    );
    return false;
  }
  const [, tag = ''] = recipe.reference.split(':');
  const source = `${registry.replace(/\/$/, '')}/${recipe.name}:${tag}`;
  step.show(`pulling ${source}`);
  try {
    await api.pull(source, (doneBytes, ofBytes, unpacking) => {
      if (unpacking) step.show(`unpacking ${source}`);
      else step.bytes(doneBytes, ofBytes);
    });
  } catch (error) {
    step.note(
      `${source} cannot be pulled (${reasonOf(error)}): building ${recipe.reference} here from Debian packages`,
    );
    return false;
  }
  await api.tag(source, recipe.reference);
  return true;
}

/**
 * @param {import('./docker-api.mjs').DockerApi} api @param {import('./recipes.mjs').Recipe} recipe
 * @param {import('./progress.mjs').Step} step
 */
async function buildHere(api, recipe, step) {
  await ensureTools(recipe, step);
  const work = mkdtempSync(join(tmpdir(), 'holdfast-image-'));
  const cleanUp = () => rmSync(work, { recursive: true, force: true });
  process.once('exit', cleanUp);
  try {
    const tar = join(work, 'root.tar');
    step.show('Node for the images');
    const inputs = [tar, await nodeForImages(work)];
    if (recipe.packages !== null) {
      step.show('fetching npm');
      inputs.push(await fetchPackage(NPM, work), recipe.packages);
    }
    step.show(`building ${recipe.name} from Debian packages (a minute at most)`);
    // Not by its own mode: an unpacked archive may have lost it.
    await run('bash', [join(recipe.directory, 'build.sh'), ...inputs], {
      env: { ...process.env, TMPDIR: work },
      missing: recipe.reference,
      next: 'Make sure that apt can reach its mirrors; an ordinary user may have to build as root once (sudo), or name a registry that has it (HOLDFAST_REGISTRY)',
    });
    step.show(`handing ${recipe.name} to the engine (${Math.round(statSync(tar).size / 1e6)} MB)`);
    await api.importImage(createReadStream(tar), recipe.reference, recipe.changes);
  } finally {
    cleanUp();
    process.removeListener('exit', cleanUp);
  }
}

/** @param {import('./recipes.mjs').Recipe} recipe @param {import('./progress.mjs').Step} step */
async function ensureTools(recipe, step) {
  if (!isDebian()) {
    throw new SetupError(
      `${recipe.reference} can only be built on Debian or Ubuntu`,
      'Set HOLDFAST_REGISTRY to a registry that has it (HOST/PATH, with PATH/sidecar and PATH/agent)',
    );
  }
  if (recipe.packages === null) return;
  const missing = onPath('mmdebstrap') === undefined ? ['mmdebstrap'] : [];
  // Ubuntu does not know Debian's keys.
  if (!existsSync('/usr/share/keyrings/debian-archive-keyring.gpg')) missing.push('debian-archive-keyring');
  // An ordinary user builds inside a user namespace.
  if (process.getuid?.() !== 0 && onPath('newuidmap') === undefined) missing.push('uidmap');
  if (missing.length === 0) return;
  if (!canInstall()) {
    throw new SetupError(
      `${recipe.reference} is built with ${missing.join(' and ')}, not installed here`,
      `Run "sudo apt-get install ${missing.join(' ')}" and run this again`,
    );
  }
  step.show(`installing ${missing.join(' and ')}`);
  await install(missing, step);
}
