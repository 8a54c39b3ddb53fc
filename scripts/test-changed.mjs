// npm run test:changed: the tests that a change can break.
//   npm run test:changed                  of this branch since it left main, committed or not
//   npm run test:changed -- REVISION      since it left that revision
//   npm run test:changed -- --all         the suites that need an engine or VS Code as well; without it they are only named
import { execFileSync, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { affectedSuites } from './setup/affected-suites.mjs';
import { ensureDependencies } from './setup/dependencies.mjs';
import { node24, node24Environment } from './setup/node.mjs';
import { ROOT } from './setup/project.mjs';

const given = process.argv.slice(2);
const runsAll = given.includes('--all');
const revision = given.find((argument) => !argument.startsWith('-')) ?? 'main';

/** @param {readonly string[]} args @returns {string[]} the lines that git prints */
function git(...args) {
  const text = execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' });
  return text.split('\n').filter((line) => line !== '');
}

/** @returns {string[]} paths below the root that differ, untracked files among them */
function changedFiles() {
  const [base = 'HEAD'] = git('merge-base', 'HEAD', revision);
  const tracked = git('diff', '--name-only', '--no-renames', base);
  return [...new Set([...tracked, ...git('ls-files', '--others', '--exclude-standard')])];
}

/** @param {readonly string[]} args @returns {Promise<boolean>} whether every test passed */
function runVitest(args) {
  return new Promise((resolve, reject) => {
    const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
    const options = { cwd: ROOT, stdio: /** @type {const} */ ('inherit'), env: node24Environment() };
    const child = spawn(node24(), [vitest, ...args], options);
    child.on('error', reject);
    child.on('close', (code) => resolve(code === 0));
  });
}

await ensureDependencies();
const changed = changedFiles();
const suites = affectedSuites(changed, git('ls-files', 'test/**/*.test.ts'));
const isProcessTest = (/** @type {string} */ path) => path.startsWith('test/processes/');
const engineSuites = suites.filter((path) => !isProcessTest(path));
// Tests that start what was changed as a program are run as if they had changed themselves.
const started = suites.filter(isProcessTest).flatMap((path) => git('ls-files', path));
const related = [...changed, ...started].filter((path) => existsSync(join(ROOT, path)));

let passed = true;
if (related.length === 0) console.log('Nothing has changed.');
else {
  const projects = ['--project', 'unit', '--project', 'processes'];
  passed = await runVitest(['related', '--run', '--passWithNoTests', ...projects, ...related]);
}
if (engineSuites.length > 0 && passed && runsAll) passed = await runVitest(['run', ...engineSuites]);
else if (engineSuites.length > 0) {
  console.log(`\nThe change can also break these suites, which need an engine or VS Code:`);
  for (const suite of engineSuites) console.log(`  ${suite}`);
  console.log(`To run them: npm run test:changed -- --all, or npx vitest run FILE`);
}
if (!passed) process.exitCode = 1;
