// npm run agent-image -- NAME…: an image with an agent that Holdfast knows, on top of our agent image.
import { AGENT_PACKAGES, buildAgentImage } from './setup/agents.mjs';
import { ensureEngine } from './setup/engine.mjs';
import { reportFailure } from './setup/failure.mjs';
import { ensureImages } from './setup/images.mjs';
import { Progress } from './setup/progress.mjs';
import { SetupError } from './setup/project.mjs';

const progress = new Progress();
try {
  const names = process.argv.slice(2);
  if (names.length === 0) {
    throw new SetupError(
      'No agent was named',
      `Say npm run agent-image -- NAME, with one of ${Object.keys(AGENT_PACKAGES).join(', ')}`,
    );
  }
  const { api } = await progress.step('Docker engine', ensureEngine, ({ socket }) => `answers at ${socket}`);
  await progress.step(
    'images',
    (step) => ensureImages(api, step),
    (done) => done.join(', '),
  );
  for (const name of names) {
    await progress.step(
      `the image of ${name}`,
      (step) => buildAgentImage(api, name, step),
      (reference) => `${reference} built`,
    );
  }
} catch (error) {
  reportFailure(progress, error);
}
