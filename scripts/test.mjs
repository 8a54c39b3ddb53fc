// npm test: all set-up that the suites need, the suites, and an end to what was started for them.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { buildProgram, ensureDependencies } from './setup/dependencies.mjs';
import { ensureEngine, stopEngine } from './setup/engine.mjs';
import { reportFailure } from './setup/failure.mjs';
import { ensureImages } from './setup/images.mjs';
import { node24, node24Environment } from './setup/node.mjs';
import { Progress } from './setup/progress.mjs';
import { ROOT } from './setup/project.mjs';

const progress = new Progress();

/** @returns {Promise<boolean>} whether every test passed */
function runSuites() {
  return new Promise((resolve, reject) => {
    const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
    const child = spawn(node24(), [vitest, 'run', ...process.argv.slice(2)], {
      cwd: ROOT,
      stdio: 'inherit',
      env: node24Environment(),
    });
    child.on('error', reject);
    child.on('close', (code) => resolve(code === 0));
  });
}

// A terminal interrupts the suites too: they end first, then what was started for them.
process.on('SIGINT', () => undefined);
let startedEngine = false;
try {
  await progress.step('Node 24 and dependencies', ensureDependencies, (installed) =>
    installed ? 'installed' : 'there',
  );
  await progress.step('build', buildProgram);
  const { api, started } = await progress.step(
    'Docker engine',
    ensureEngine,
    ({ socket }) => `answers at ${socket}`,
  );
  startedEngine = started;
  await progress.step(
    'images',
    (step) => ensureImages(api, step),
    (done) => done.join(', '),
  );
  if (!(await runSuites())) process.exitCode = 1;
} catch (error) {
  reportFailure(progress, error);
} finally {
  if (startedEngine) progress.line(await stopEngine());
}
