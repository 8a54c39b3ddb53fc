import { spawn } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { testEnvironment } from './test-environment.ts';

/** Where VS Code writes down what is installed, with the place of each. */
const INDEX = 'extensions.json';

/** Installs a .vsix as a person would, into a folder of its own, from which every VS Code of the run has its copy. */
export async function installExtension(codeServer: string, vsix: string, folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
  const surroundings = await mkdtemp(join(tmpdir(), 'holdfast-install-'));
  try {
    const places = ['--user-data-dir', join(surroundings, 'user'), '--extensions-dir', folder];
    const args = [join(codeServer, 'out/node/entry.js'), ...places, '--install-extension', vsix];
    const child = spawn(process.execPath, args, {
      env: testEnvironment(surroundings, {}),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
    const code = await new Promise((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    });
    if (code !== 0) throw new Error(`the extension was not installed (${String(code)}):\n${said}`);
  } finally {
    await rm(surroundings, { recursive: true, force: true });
  }
}

export async function copyExtensions(from: string, to: string): Promise<void> {
  await cp(from, to, { recursive: true });
  const index = await readFile(join(from, INDEX), 'utf8');
  await writeFile(join(to, INDEX), index.replaceAll(from, to));
}
