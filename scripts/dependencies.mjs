// Installs node_modules when the lock file has changed.
import { ensureDependencies } from './setup/dependencies.mjs';
import { reportFailure } from './setup/failure.mjs';
import { Progress } from './setup/progress.mjs';

const progress = new Progress();
try {
  await progress.step('Node 24 and dependencies', ensureDependencies, (installed) =>
    installed ? 'installed' : 'there',
  );
} catch (error) {
  reportFailure(progress, error);
}
