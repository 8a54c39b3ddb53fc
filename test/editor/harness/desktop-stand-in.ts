// Takes the command line of VS Code for the desktop and opens what it says in a browser: stands in for it where it cannot be had. The extension
// host is a real one; what a window of Electron does is not shown by it.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { runInBrowser } from './browser-run.ts';
import { checkout } from './editor-paths.ts';

const string = { type: 'string' } as const;
const flag = { type: 'boolean' } as const;
const { values } = parseArgs({
  options: {
    extensionDevelopmentPath: string,
    extensionTestsPath: string,
    'user-data-dir': string,
    'extensions-dir': string,
    'folder-uri': string,
    'file-uri': string,
    'skip-welcome': flag,
    'skip-release-notes': flag,
    'disable-updates': flag,
    'disable-telemetry': flag,
    'disable-gpu-sandbox': flag,
    'no-sandbox': flag,
  },
});
const { root, suite } = checkout();
if (values.extensionDevelopmentPath !== root || values.extensionTestsPath !== suite)
  throw new Error('only this checkout’s suite can be run');

const settings = await readFile(join(values['user-data-dir'] ?? '', 'User/settings.json'), 'utf8');
const { code, output } = await runInBrowser({
  name: 'desktop-stand-in',
  settings: JSON.parse(settings) as Record<string, unknown>,
  env: Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) =>
      name.startsWith('HOLDFAST_') && value !== undefined ? [[name, value]] : [],
    ),
  ),
  open: (server) => {
    const here = (uri: string): string => (uri.startsWith('file:') ? server.remote(fileURLToPath(uri)) : uri);
    const { 'folder-uri': folder, 'file-uri': workspace } = values;
    return {
      ...(folder === undefined ? {} : { folder: here(folder) }),
      ...(workspace === undefined ? {} : { workspace: here(workspace) }),
    };
  },
});
if (code !== 0) console.error(output);
process.exitCode = code ?? 1;
