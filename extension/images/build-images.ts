import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { commands, window, workspace } from 'vscode';
import type { CancellationToken, LogOutputChannel } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import { notifyProgress } from '../base/progress.ts';
import type { SupervisorProgram } from '../connection/supervisor-program.ts';

const NEW_SESSION = 'New Session';
/** How long a cancelled build may take to clean up. */
const CANCEL_MS = 10_000;
/** The last lines of output, for the error message. */
const MAX_LINES = 20;

export interface BuildImagesOptions {
  readonly extensionPath: string;
  readonly home: string;
  readonly program: () => Promise<SupervisorProgram>;
  readonly log: LogOutputChannel;
}

/**
 * Puts Holdfast's images on the engine: pulls them from the registry of the setting `holdfast.registry`, else builds
 * them on this machine. Errors: `image_not_found` with what is missing and what to do; `cancelled`.
 */
export async function buildImages(options: BuildImagesOptions): Promise<boolean> {
  await notifyProgress({ title: "Building Holdfast's images", cancellable: true }, (progress, token) =>
    run(options, token, (message) => progress.report({ message })),
  );
  void window
    .showInformationMessage("Holdfast's images are ready.", NEW_SESSION)
    .then((choice) => choice !== undefined && commands.executeCommand('holdfast.newSession'));
  return true;
}

async function run(
  { extensionPath, home, program, log }: BuildImagesOptions,
  token: CancellationToken,
  show: (message: string) => void,
): Promise<void> {
  const { cli, environment } = await program();
  const [node = 'node'] = cli;
  const registry = workspace.getConfiguration('holdfast').get<string>('registry', '');
  // A process group of its own, so that cancelling ends all of it. It notices our death when its standard input closes.
  const child = spawn(node, [join(extensionPath, 'dist/setup/images.cjs'), '--with-parent'], {
    cwd: extensionPath,
    env: {
      ...environment,
      HOLDFAST_HOME: home,
      ...(registry === '' ? {} : { HOLDFAST_REGISTRY: registry }),
    },
    stdio: ['pipe', 'ignore', 'pipe'],
    detached: true,
  });
  const lines: string[] = [];
  createInterface({ input: child.stderr }).on('line', (line) => {
    log.info(line);
    lines.push(line);
    if (lines.length > MAX_LINES) lines.shift();
    if (/^ +… /.test(line)) show(line.replace(/^ +… /, ''));
  });
  const signal = (name: NodeJS.Signals): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, name);
    } catch {
      // The process has already exited.
    }
  };
  let forced: NodeJS.Timeout | undefined;
  const cancelling = token.onCancellationRequested(() => {
    signal('SIGTERM');
    forced = setTimeout(() => signal('SIGKILL'), CANCEL_MS);
  });
  try {
    const code = await new Promise<number | null>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', resolve);
    });
    if (token.isCancellationRequested) {
      throw new HoldfastError('cancelled', 'Building the images was cancelled');
    }
    if (code !== 0) throw failure(lines);
  } finally {
    clearTimeout(forced);
    cancelling.dispose();
  }
}

/** The output of a failed build ends with the reason, and a line `→ what to do`. */
function failure(lines: readonly string[]): HoldfastError {
  const arrow = lines.findIndex((line) => line.startsWith('→ '));
  const why = lines[arrow < 0 ? lines.length - 1 : arrow - 1] ?? 'the build ended without a message';
  const next = arrow < 0 ? 'see the log' : (lines[arrow] ?? '').slice(2);
  return new HoldfastError('image_not_found', "Holdfast's images could not be built", { why, next });
}
