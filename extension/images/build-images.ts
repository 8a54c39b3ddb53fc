import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { ProgressLocation, commands, window, workspace } from 'vscode';
import type { CancellationToken, LogOutputChannel } from 'vscode';
import { HoldfastError } from '../../protocol/errors.ts';
import type { SupervisorProgram } from '../connection/supervisor-program.ts';

const NEW_SESSION = 'New Session';
/** What is being built is put away in that time. */
const END_MS = 10_000;
const KEPT_LINES = 20;

export interface BuildImagesOptions {
  readonly extensionPath: string;
  readonly home: string;
  readonly program: () => Promise<SupervisorProgram>;
  readonly log: LogOutputChannel;
}

/**
 * Puts Holdfast's images on the engine: from the registry that was named, else built on this machine by the program that came with the
 * extension. Gives whether they are there. Errors: `image_not_found` with what is missing and what to do; `cancelled`.
 */
export async function buildImages(options: BuildImagesOptions): Promise<boolean> {
  await window.withProgress(
    { location: ProgressLocation.Notification, title: "Holdfast's images", cancellable: true },
    (progress, token) => run(options, token, (message) => progress.report({ message })),
  );
  void window
    .showInformationMessage("Holdfast's images are on the engine.", NEW_SESSION)
    .then((choice) => choice !== undefined && commands.executeCommand('holdfast.newSession'));
  return true;
}

async function run(
  { extensionPath, home, program, log }: BuildImagesOptions,
  token: CancellationToken,
  tell: (message: string) => void,
): Promise<void> {
  const { cli, environment } = await program();
  const [node = 'node'] = cli;
  const registry = workspace.getConfiguration('holdfast').get<string>('registry', '');
  // A group of its own, so that all of it ends when it is cancelled; it holds our end of its input to know when we are gone.
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
    if (lines.length > KEPT_LINES) lines.shift();
    if (/^ +… /.test(line)) tell(line.replace(/^ +… /, ''));
  });
  const signal = (name: NodeJS.Signals): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, name);
    } catch {
      // It has ended by itself.
    }
  };
  let forced: NodeJS.Timeout | undefined;
  const cancelling = token.onCancellationRequested(() => {
    signal('SIGTERM');
    forced = setTimeout(() => signal('SIGKILL'), END_MS);
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

/** It ends with what went wrong, then what to do behind an arrow. */
function failure(lines: readonly string[]): HoldfastError {
  const at = lines.findIndex((line) => line.startsWith('→ '));
  const why = lines[at < 0 ? lines.length - 1 : at - 1] ?? 'it ended without a word';
  const next = at < 0 ? 'see the log' : (lines[at] ?? '').slice(2);
  return new HoldfastError('image_not_found', "Holdfast's images could not be built", { why, next });
}
