// npm run test:electron: the API suites of the extension in VS Code for the desktop, which @vscode/test-electron downloads.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { ensureDependencies } from './setup/dependencies.mjs';
import { checkDisplay, desktopArguments, ensureDesktop } from './setup/desktop.mjs';
import { reportFailure } from './setup/failure.mjs';
import { Progress } from './setup/progress.mjs';
import { ROOT } from './setup/project.mjs';

const progress = new Progress();

/** @param {string} vscode @param {string[]} rest @returns {Promise<number>} the exit code of the suites */
function runSuites(vscode, rest) {
  return new Promise((resolve, reject) => {
    const args = [join(ROOT, 'scripts/test.mjs'), '--project', 'editor', ...rest];
    const env = { ...process.env, HOLDFAST_TEST_VSCODE: vscode };
    const child = spawn(process.execPath, args, { cwd: ROOT, stdio: 'inherit', env });
    child.on('error', reject);
    child.on('close', (code) => resolve(code ?? 1));
  });
}

// A terminal interrupts the suites too, which clean up first.
process.on('SIGINT', () => undefined);
try {
  const { vscode: named, rest } = desktopArguments(process.argv.slice(2), process.env);
  await progress.step('Node 24 and dependencies', ensureDependencies, (installed) =>
    installed ? 'installed' : 'there',
  );
  const vscode = await progress.step(
    'VS Code',
    (step) => ensureDesktop(named, step),
    (path) => path,
  );
  checkDisplay(process.env);
  process.exitCode = await runSuites(vscode, rest);
} catch (error) {
  reportFailure(progress, error);
}
