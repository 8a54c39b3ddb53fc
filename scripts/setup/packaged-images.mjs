// In the package, as dist/setup/images.cjs: our images on the engine that is there, for people who have no checkout. Its output is lines.
import { DockerApi } from './docker-api.mjs';
import { endpoint } from './endpoint.mjs';
import { reportFailure } from './failure.mjs';
import { ensureImages } from './images.mjs';
import { Progress } from './progress.mjs';
import { SetupError } from './project.mjs';

// Whoever cancels wants no temporary files left either: they go when the process exits.
for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => process.exit(143));

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

async function main() {
  const progress = new Progress();
  try {
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
