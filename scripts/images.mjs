// npm run images: our images on the engine. With --minimal, the small variant of the agent image too.
import { ensureEngine } from './setup/engine.mjs';
import { ensureImages } from './setup/images.mjs';
import { Progress } from './setup/progress.mjs';
import { reportFailure } from './setup/failure.mjs';

const progress = new Progress();
try {
  const { api } = await progress.step('Docker engine', ensureEngine, ({ socket }) => `answers at ${socket}`);
  await progress.step(
    'images',
    (step) => ensureImages(api, step, { minimal: process.argv.includes('--minimal') }),
    (done) => done.join(', '),
  );
} catch (error) {
  reportFailure(progress, error);
}
