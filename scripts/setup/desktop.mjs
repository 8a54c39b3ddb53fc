// VS Code for the desktop, for the suites of the editor where the internet can be reached, or where one is installed.
import { accessSync, constants, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { ROOT, SetupError } from './project.mjs';

const INSTALLED = 'npm run test:electron -- --vscode /usr/share/code/code';
const DOWNLOAD_IDLE_MS = 30_000;

/**
 * What `npm run test:electron -- …` was told: `--vscode PATH` (or HOLDFAST_VSCODE) names an installed one; the rest is for the suites.
 * @param {readonly string[]} args @param {NodeJS.ProcessEnv} env
 * @returns {{ vscode: string | undefined, rest: string[] }}
 */
export function desktopArguments(args, env) {
  const rest = [...args];
  let vscode = env['HOLDFAST_VSCODE'] || undefined;
  const at = rest.findIndex((one) => one === '--vscode' || one.startsWith('--vscode='));
  if (at >= 0) {
    const [option = '', next] = rest.splice(at, rest[at] === '--vscode' ? 2 : 1);
    vscode = option === '--vscode' ? next : option.slice('--vscode='.length);
    if (!vscode) throw new SetupError('--vscode needs the path of a VS Code', INSTALLED);
  }
  return { vscode, rest };
}

/**
 * The program of a VS Code: the one that is named, else VS Code stable, downloaded once.
 * @param {string | undefined} named @param {import('./progress.mjs').Step} step @returns {Promise<string>} an absolute path
 */
export async function ensureDesktop(named, step) {
  return named === undefined ? download(step) : installed(resolve(named));
}

/** Linux draws windows only where there is a display. @param {NodeJS.ProcessEnv} env */
export function checkDisplay(env) {
  if (process.platform !== 'linux' || env['DISPLAY'] || env['WAYLAND_DISPLAY']) return;
  throw new SetupError(
    'VS Code for the desktop needs a display, and none is there',
    'Give it one that nobody sees: xvfb-run -a npm run test:electron',
  );
}

/** @param {string} path */
function installed(path) {
  try {
    accessSync(path, constants.X_OK);
    if (statSync(path).isFile()) return path;
  } catch (error) {
    throw new SetupError(`there is no VS Code at ${path}`, `Name its program: ${INSTALLED}`, error);
  }
  throw new SetupError(`${path} is no program`, `Name the program of a VS Code: ${INSTALLED}`);
}

/** @param {import('./progress.mjs').Step} step */
async function download(step) {
  const base = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  // In this way types do not ask for it before it is installed.
  const load = createRequire(join(ROOT, 'package.json'));
  /** @type {{ downloadAndUnzipVSCode: (options: object) => Promise<string> }} */
  const { downloadAndUnzipVSCode } = load('@vscode/test-electron');
  step.show('VS Code stable, about 150 MB');
  try {
    return await downloadAndUnzipVSCode({
      version: 'stable',
      cachePath: join(base, 'holdfast', 'vscode-desktop'),
      timeout: DOWNLOAD_IDLE_MS,
      reporter: { report: () => undefined, error: () => undefined },
    });
  } catch (error) {
    throw new SetupError(
      'VS Code cannot be downloaded',
      `Run this where the internet can be reached, or name an installed one: ${INSTALLED}`,
      error,
    );
  }
}
