import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { copyExtensions } from './extensions-folder.ts';
import { TEST_SETTINGS, testEnvironment } from './test-environment.ts';

const START_MS = 60_000;
const STOP_MS = 5_000;

export interface CodeServerOptions {
  /** Folder of the package, as HOLDFAST_TEST_CODE_SERVER names it. */
  readonly codeServer: string;
  /** What the extension host finds in its environment besides ours. */
  readonly env?: Readonly<Record<string, string>>;
  readonly settings?: Readonly<Record<string, unknown>>;
  /** Lets the page load an extension from a folder and run tests in it. Hides notification toasts. */
  readonly developer?: boolean;
  /** A folder of installed extensions to begin with a copy of. */
  readonly extensions?: string;
}

/** What the page is to open. */
export interface OpenTarget {
  readonly folder?: string;
  readonly workspace?: string;
  readonly payload?: readonly (readonly [string, string])[];
}

/** How a window is told of what it opens. */
export interface Addresses {
  /** The address of a folder or file of this machine. */
  remote(path: string): string;
}

/** A real VS Code on 127.0.0.1 with its data, temporary files and sockets in one folder, which goes with it. */
export class CodeServer implements Addresses {
  readonly port: number;
  readonly folder: string;
  readonly #child: ChildProcess;
  readonly #said: () => string;

  private constructor(child: ChildProcess, port: number, folder: string, output: () => string) {
    this.#child = child;
    this.port = port;
    this.folder = folder;
    this.#said = output;
  }

  static async start(options: CodeServerOptions): Promise<CodeServer> {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-vscode-'));
    try {
      await mkdir(join(folder, 'user/User'), { recursive: true });
      const extensions = join(folder, 'extensions');
      if (options.extensions === undefined) await mkdir(extensions);
      else await copyExtensions(options.extensions, extensions);
      await writeFile(
        join(folder, 'user/User/settings.json'),
        JSON.stringify({ ...TEST_SETTINGS, ...options.settings }),
      );
      await writeFile(join(folder, 'config.yaml'), 'auth: none\n');
      const env = testEnvironment(folder, { XDG_RUNTIME_DIR: folder, ...options.env });
      const entry = join(options.codeServer, 'out/node/entry.js');
      const places = ['--user-data-dir', join(folder, 'user'), '--extensions-dir', extensions];
      const args = [
        entry,
        ...[
          '--config',
          join(folder, 'config.yaml'),
          '--auth',
          'none',
          '--bind-addr',
          '127.0.0.1:0',
          ...places,
        ],
        ...['--disable-telemetry', '--disable-update-check', '--disable-getting-started-override'],
        // A built VS Code heeds extensionDevelopmentPath and extensionTestsPath of the page's address with this alone.
        ...(options.developer === true ? ['--vscode-option', 'enable-smoke-test-driver'] : []),
      ];
      // A process group of its own: its extension hosts and terminals end with it.
      const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
      let said = '';
      const port = await listening(
        child,
        (text) => (said = (said + text).slice(-64 * 1024)),
        () => said,
      );
      return new CodeServer(child, port, folder, () => said);
    } catch (error) {
      await rm(folder, { recursive: true, force: true });
      throw error;
    }
  }

  get origin(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** What the server said last, for a failure's message. */
  get output(): string {
    return this.#said();
  }

  /** The address of a folder of this machine, as the page must name it. */
  remote(path: string): string {
    return `vscode-remote://127.0.0.1:${this.port}${path}`;
  }

  url({ folder, workspace, payload }: OpenTarget): string {
    const query = new URLSearchParams();
    if (folder !== undefined) query.set('folder', folder);
    if (workspace !== undefined) query.set('workspace', workspace);
    if (folder === undefined && workspace === undefined) query.set('ew', 'true');
    if (payload !== undefined) query.set('payload', JSON.stringify(payload));
    return `${this.origin}/?${query.toString()}`;
  }

  async stop(): Promise<void> {
    const ended = new Promise<void>((resolve) => {
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) resolve();
      else this.#child.once('exit', () => resolve());
    });
    this.#signal('SIGTERM');
    const limit = setTimeout(() => this.#signal('SIGKILL'), STOP_MS);
    await ended;
    clearTimeout(limit);
    this.#signal('SIGKILL');
    await rm(this.folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }

  #signal(signal: NodeJS.Signals): void {
    const { pid } = this.#child;
    if (pid === undefined) return;
    try {
      process.kill(-pid, signal);
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
    }
  }
}

function listening(child: ChildProcess, keep: (text: string) => void, said: () => string): Promise<number> {
  return new Promise((resolve, reject) => {
    const limit = setTimeout(() => fail(`did not listen in ${START_MS} ms`), START_MS);
    const fail = (why: string): void => {
      clearTimeout(limit);
      reject(new Error(`code-server ${why}\n${said()}`));
    };
    const hear = (text: string): void => {
      keep(text);
      const port = /listening on http:\/\/127\.0\.0\.1:(\d+)/.exec(said())?.[1];
      if (port === undefined) return;
      clearTimeout(limit);
      resolve(Number(port));
    };
    child.stdout?.setEncoding('utf8').on('data', hear);
    child.stderr?.setEncoding('utf8').on('data', hear);
    child.once('error', (error) => fail(`cannot be run: ${error.message}`));
    child.once('exit', (code, signal) => fail(`ended with ${String(code ?? signal)}`));
  });
}
