// npm test: the set-up that the suites need, the suites tier by tier, and an end to what was started for them.
//   npm test                    every tier; a red tier ends the run
//   npm test -- --keep-going    the later tiers also run after a red one
//   npm test -- ARGUMENTS       one run of vitest with these arguments
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { buildProgram, ensureDependencies } from './setup/dependencies.mjs';
import { ensureEngine, stopEngine } from './setup/engine.mjs';
import { reportFailure } from './setup/failure.mjs';
import { ensureImages } from './setup/images.mjs';
import { node24, node24Environment } from './setup/node.mjs';
import { Progress } from './setup/progress.mjs';
import { ROOT } from './setup/project.mjs';

/** Each tier is one run of vitest with these projects; the cheap ones come first. */
const ENGINE_TIERS = [['processes'], ['docker', 'attacks', 'faults'], ['editor', 'e2e']];

const progress = new Progress();
const given = process.argv.slice(2);
const keepsGoing = given.includes('--keep-going');
const vitestArguments = given.filter((argument) => argument !== '--keep-going');

/** @param {readonly string[]} args @returns {Promise<boolean>} whether every test passed */
function runVitest(args) {
  return new Promise((resolve, reject) => {
    const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
    const child = spawn(node24(), [vitest, 'run', ...args], {
      cwd: ROOT,
      stdio: 'inherit',
      env: node24Environment(),
    });
    child.on('error', reject);
    child.on('close', (code) => resolve(code === 0));
  });
}

/** @param {readonly string[]} projects @returns {Promise<boolean>} whether the next tier is to run */
async function runTier(projects) {
  const began = performance.now();
  const passed = await runVitest(projects.flatMap((project) => ['--project', project]));
  if (!passed) process.exitCode = 1;
  const seconds = Math.round((performance.now() - began) / 1000);
  progress.line(`${projects.join(', ')}: ${passed ? 'passed' : 'FAILED'} after ${seconds} s`);
  return !interrupted && (passed || keepsGoing);
}

// A terminal interrupts the suites too: they end first, then what was started for them.
let interrupted = false;
process.on('SIGINT', () => (interrupted = true));
let startedEngine = false;
async function prepareEngine() {
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
}

async function runTiers() {
  if (!(await runTier(['unit']))) return;
  await progress.step('build', buildProgram);
  await prepareEngine();
  for (const projects of ENGINE_TIERS) {
    if (!(await runTier(projects))) return;
  }
}

async function runOnce() {
  await progress.step('build', buildProgram);
  await prepareEngine();
  if (!(await runVitest(vitestArguments))) process.exitCode = 1;
}

try {
  await progress.step('Node 24 and dependencies', ensureDependencies, (installed) =>
    installed ? 'installed' : 'there',
  );
  await (vitestArguments.length === 0 ? runTiers() : runOnce());
} catch (error) {
  reportFailure(progress, error);
} finally {
  if (startedEngine) progress.line(await stopEngine());
}
