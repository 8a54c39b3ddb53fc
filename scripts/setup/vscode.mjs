// A real VS Code and a browser for the editor's suites: code-server from the npm registry, Chromium from Debian.
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { onPath, run } from './command.mjs';
import { canInstall, install } from './debian.mjs';
import { node24, node24Environment, nodePackage } from './node.mjs';
import { ROOT, SetupError } from './project.mjs';

const RECIPE = join(ROOT, 'test/editor/vscode');
// Raised when the steps below change what comes out of them.
const STEPS = 1;
const UNUSED_MS = 30 * 24 * 3600_000;
/** What has to be compiled for this machine; the rest of VS Code's native parts serve what the suites do not use. */
const NATIVE = ['node-pty', '@vscode/spdlog', '@vscode/native-watchdog'];

/** @typedef {{ codeServer: string, chromium: string }} Editor folder of code-server's package; path of the browser */

/** @returns {string} outside of the checkout, so that every clone and `npm ci` uses the one of its version */
function cache() {
  const base = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  return join(base, 'holdfast', 'vscode');
}

/** @returns {string} where the version that this checkout asks for is, or will be */
function place() {
  const hash = createHash('sha256');
  hash.update(`${STEPS} ${process.arch} ${process.versions.modules} `);
  hash.update(readFileSync(join(RECIPE, 'package-lock.json')));
  return join(cache(), hash.digest('hex').slice(0, 16));
}

/**
 * @param {import('./progress.mjs').Step} step
 * @returns {Promise<Editor & { installed: boolean }>}
 */
export async function ensureEditor(step) {
  const chromium = await ensureChromium(step);
  const target = place();
  const codeServer = join(target, 'node_modules/code-server');
  // The folder gets its name when everything is in it.
  const installed = !existsSync(target);
  if (installed) await installCodeServer(target, step);
  const now = new Date();
  utimesSync(target, now, now);
  return { codeServer, chromium, installed };
}

/** @param {import('./progress.mjs').Step} step */
async function ensureChromium(step) {
  const named = process.env['HOLDFAST_CHROMIUM'];
  const found = named || onPath('chromium') || onPath('chromium-browser') || onPath('google-chrome');
  if (found) return found;
  if (!canInstall()) {
    throw new SetupError(
      'the editor suites need Chromium',
      'Install it ("apt-get install chromium") or name one in HOLDFAST_CHROMIUM',
    );
  }
  step.show('Chromium from Debian');
  await install(['chromium'], step);
  const path = onPath('chromium');
  if (path === undefined) throw new SetupError('Chromium was installed and is not there', 'See the log');
  return path;
}

/** Compilers for the three native parts. @param {import('./progress.mjs').Step} step */
async function ensureCompilers(step) {
  const missing = ['g++', 'make', 'python3'].filter((program) => onPath(program) === undefined);
  if (missing.length === 0) return;
  if (!canInstall()) {
    throw new SetupError(
      `VS Code's native parts need ${missing.join(', ')}`,
      `Install them ("apt-get install ${missing.join(' ')}") and run this again`,
    );
  }
  step.show(`${missing.join(', ')} from Debian`);
  await install(missing, step);
}

/** @param {string} target @param {import('./progress.mjs').Step} step */
async function installCodeServer(target, step) {
  await ensureCompilers(step);
  mkdirSync(cache(), { recursive: true });
  removeUnused();
  const unfinished = `${target}.${process.pid}`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished);
  for (const name of ['package.json', 'package-lock.json', '.npmrc']) {
    cpSync(join(RECIPE, name), join(unfinished, name));
  }
  const vscode = join(unfinished, 'node_modules/code-server/lib/vscode');
  const env = {
    ...node24Environment(),
    // Headers come with the Node that is used: nothing is fetched from elsewhere.
    npm_config_nodedir: nodePackage(),
    npm_config_build_from_source: 'true',
  };
  const quiet = ['--no-audit', '--no-fund', '--no-progress', '--loglevel=error'];
  const next = 'Make sure that npm can reach its registry and run this again';
  /** @param {string} cwd @param {string[]} args */
  const npm = (cwd, args) => run('npm', [...args, ...quiet], { cwd, env, next });
  try {
    step.show('VS Code (code-server) from the npm registry, about 600 MB');
    await npm(unfinished, ['ci', '--ignore-scripts']);
    step.show('its libraries');
    // Not `npm ci`: the published shrinkwrap lacks a package that the manifest names. Versions come from it all the same.
    await npm(vscode, ['install', '--omit=dev', '--ignore-scripts']);
    await npm(join(vscode, 'extensions'), ['install', '--omit=dev', '--ignore-scripts']);
    await run(node24(), ['postinstall.mjs'], { cwd: join(vscode, 'extensions'), env, next });
    step.show('its native parts');
    await npm(vscode, ['rebuild', ...NATIVE]);
    renameSync(unfinished, target);
  } catch (error) {
    // Somebody else's run may have been first.
    if (!existsSync(target)) throw error;
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
}

/** Versions that no checkout has used for a month, and what interrupted installations have left for a day. */
function removeUnused() {
  for (const name of readdirSync(cache())) {
    const path = join(cache(), name);
    const age = Date.now() - statSync(path).mtimeMs;
    if (age > UNUSED_MS || (name.includes('.') && age > UNUSED_MS / 30))
      rmSync(path, { recursive: true, force: true });
  }
}
