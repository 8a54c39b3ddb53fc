// npm run engine:start, npm run engine:stop
import { ensureEngine, stopEngine } from './setup/engine.mjs';
import { Progress } from './setup/progress.mjs';
import { reportFailure } from './setup/failure.mjs';

const progress = new Progress();
try {
  if (process.argv[2] === 'stop') progress.line(await stopEngine());
  else await progress.step('Docker engine', ensureEngine, ({ socket }) => `answers at ${socket}`);
} catch (error) {
  reportFailure(progress, error);
}
