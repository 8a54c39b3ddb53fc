// npm test: the set-up that the suites need, the suites tier by tier, and an end to what was started for them.
//   npm test                    every tier; a red tier ends the run
//   npm test -- --keep-going    the later tiers also run after a red one
//   npm test -- --rerun-failed  a few failed files run once more, alone; a file that passes then is named as unreliable
//   npm test -- ARGUMENTS       one run of vitest with these arguments
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
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
const rerunsFailed = given.includes('--rerun-failed');
const vitestArguments = given.filter((argument) => !['--keep-going', '--rerun-failed'].includes(argument));

/** More failed files than this are a fault of the change, not of the tests: they are not run again. */
const MAX_RERUN_FILES = 4;
/** @type {string[]} files that failed and then passed; each is a bug to mend */
const unreliable = [];

let isBuilt = false;
async function buildOnce() {
  await progress.step('build', buildProgram);
  isBuilt = true;
}

/** @param {readonly string[]} args @returns {Promise<boolean>} whether every test passed */
function runVitest(args) {
  return new Promise((resolve, reject) => {
    const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
    const child = spawn(node24(), [vitest, 'run', ...args], {
      cwd: ROOT,
      stdio: 'inherit',
      env: { ...node24Environment(), ...(isBuilt ? { HOLDFAST_TEST_BUILT: '1' } : {}) },
    });
    child.on('error', reject);
    child.on('close', (code) => resolve(code === 0));
  });
}

/** @param {string} report a file of vitest's JSON reporter @returns {string[] | null} null if there is no full report */
function failedFiles(report) {
  try {
    /** @type {{ testResults: { name: string, status: string }[] }} */
    const { testResults } = JSON.parse(readFileSync(report, 'utf8'));
    return testResults.filter(({ status }) => status !== 'passed').map(({ name }) => relative(ROOT, name));
  } catch {
    return null;
  }
}

/**
 * A tier whose few failed files pass alone has passed: one unreliable test does not hold up everything else. The
 * files are named at the end of the output.
 * @param {readonly string[]} projects
 * @returns {Promise<boolean>}
 */
async function runProjects(projects) {
  const selection = projects.flatMap((project) => ['--project', project]);
  if (!rerunsFailed) return await runVitest(selection);
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-report-'));
  try {
    const report = join(directory, 'report.json');
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
    if (await runVitest([...selection, ...reporters])) return true;
    const files = failedFiles(report);
    if (interrupted || files === null || files.length === 0 || files.length > MAX_RERUN_FILES) return false;
    progress.line(`run again: ${files.join(', ')}`);
    if (!(await runVitest([...selection, ...files]))) return false;
    unreliable.push(...files);
    return true;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

/** @param {readonly string[]} projects @returns {Promise<boolean>} whether the next tier is to run */
async function runTier(projects) {
  const began = performance.now();
  const passed = await runProjects(projects);
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
  await buildOnce();
  await prepareEngine();
  for (const projects of ENGINE_TIERS) {
    if (!(await runTier(projects))) return;
  }
}

async function runOnce() {
  await buildOnce();
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
  if (unreliable.length > 0) progress.line(`UNRELIABLE, mend them: ${unreliable.join(', ')}`);
}
