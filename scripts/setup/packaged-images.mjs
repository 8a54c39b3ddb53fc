// In the package, as dist/setup/images.cjs: our images on the engine that is there, for people who have no checkout. Its output is lines.
//   --missing           prints which of them the engine lacks, as JSON
//   --save REFERENCE…   writes an archive of images to standard output
//   --load              reads one from standard input
import { Socket } from 'node:net';
import { DockerApi } from './docker-api.mjs';
import { endpoint } from './endpoint.mjs';
import { reportFailure } from './failure.mjs';
import { ensureImages } from './images.mjs';
import { Progress } from './progress.mjs';
import { SetupError } from './project.mjs';
import { recipes } from './recipes.mjs';

// Whoever cancels wants no temporary files left either: they go when the process exits.
for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => process.exit(143));

// Whoever started us holds the other end of our input, and is gone when that is: then nobody waits for the images. We lead a group of our own.
if (process.argv.includes('--with-parent')) {
  process.stdin.resume().once('close', () => process.kill(-process.pid, 'SIGTERM'));
  if (process.stdin instanceof Socket) process.stdin.unref();
}

async function engine() {
  const { socket, from } = endpoint();
  const api = new DockerApi(socket);
  const problem = await api.ping();
  if (problem !== undefined) {
    throw new SetupError(
      `no Docker engine answers at ${socket} (${from}): ${problem}`,
      'Start it, and run this again',
    );
  }
  return api;
}

/** @returns {Promise<string[]>} our images that the engine does not have */
async function missing() {
  const api = await engine();
  const found = [];
  for (const { reference } of Object.values(recipes())) {
    if (!(await api.hasImage(reference))) found.push(reference);
  }
  return found;
}

/** Loads what comes on standard input. A loaded image gets the name that a build would have given it, too. */
async function load() {
  const api = await engine();
  await api.load(process.stdin);
  for (const { reference, stable } of Object.values(recipes())) {
    if (stable !== null && (await api.hasImage(reference))) await api.tag(reference, stable);
  }
}

async function main() {
  const progress = new Progress();
  const [mode, ...references] = process.argv.slice(2);
  try {
    if (mode === '--missing') {
      process.stdout.write(`${JSON.stringify(await missing())}\n`);
      return;
    }
    if (mode === '--save') return await (await engine()).save(references, process.stdout);
    if (mode === '--load') return await load();
    const api = await engine();
    await progress.step(
      'images',
      (step) => ensureImages(api, step),
      (done) => done.join(', '),
    );
  } catch (error) {
    reportFailure(progress, error);
  }
}

void main();
