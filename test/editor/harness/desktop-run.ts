import { spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { HostExit, SuiteOptions } from './extension-host.ts';
import { checkout } from './editor-paths.ts';
import { TEST_SETTINGS, testEnvironment } from './test-environment.ts';
import { within } from './within.ts';

const STOP_MS = 5_000;

/**
 * Runs the suite in the extension host of VS Code for the desktop. Not through `runTests` of @vscode/test-electron, which switches Workspace Trust
 * off: here it stays on.
 */
export async function runInDesktop(program: string, options: SuiteOptions): Promise<HostExit> {
  const { root, suite } = checkout();
  // Short: sockets of VS Code lie in it.
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-vscode-'));
  try {
    const user = join(folder, 'user');
    await mkdir(join(user, 'User'), { recursive: true });
    const settings = JSON.stringify({ ...TEST_SETTINGS, ...options.settings });
    await writeFile(join(user, 'User/settings.json'), settings);
    const opening = await options.open({ remote: (path) => pathToFileURL(path).href });
    const args = [
      `--extensionDevelopmentPath=${root}`,
      `--extensionTestsPath=${suite}`,
      ...['--user-data-dir', user, '--extensions-dir', join(folder, 'extensions')],
      ...['--skip-welcome', '--skip-release-notes', '--disable-updates', '--disable-telemetry'],
      ...['--disable-gpu-sandbox', ...(process.getuid?.() === 0 ? ['--no-sandbox'] : [])],
      ...(opening.folder === undefined ? [] : ['--folder-uri', opening.folder]),
      ...(opening.workspace === undefined ? [] : ['--file-uri', opening.workspace]),
    ];
    // A process group of its own: its extension hosts and terminals end with it.
    const child = spawn(program, args, {
      env: testEnvironment(folder, options.env),
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    });
    let said = '';
    const hear = (text: string): unknown => (said = (said + text).slice(-64 * 1024));
    child.stdout.setEncoding('utf8').on('data', hear);
    child.stderr.setEncoding('utf8').on('data', hear);
    const ended = new Promise<number>((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', (code, signal) => resolve(code ?? (signal === null ? 1 : 128)));
    });
    try {
      return { code: await within(options.timeoutMs ?? 240_000, ended), output: said };
    } finally {
      signal(child.pid, 'SIGTERM');
      await within(STOP_MS, ended).catch(() => undefined);
      signal(child.pid, 'SIGKILL');
    }
  } finally {
    await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}

function signal(group: number | undefined, name: NodeJS.Signals): void {
  if (group === undefined) return;
  try {
    process.kill(-group, name);
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}
