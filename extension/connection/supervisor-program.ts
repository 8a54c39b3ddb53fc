import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import type { ClientInfo } from '../../protocol/methods.ts';
import { supervisorCommand } from '../../protocol/client/start.ts';

/** The supervisor is a program for this Node or a newer one, with `node:sqlite` in it. */
const LEAST_NODE = 24;
/** A terminal's process only carries bytes. */
const SMALL = ['--max-semi-space-size=1', '--max-old-space-size=64'];
const PROBE_MS = 10_000;
const PROBE = `require('node:sqlite');process.exit(Number(process.versions.node.split('.')[0])>=${LEAST_NODE}?0:3)`;
/** A supervisor that runs in VS Code's own program must not keep it in use for ever: an update could not replace it. */
const LEAVE_AFTER_MS = 10 * 60_000;

export interface SupervisorProgram {
  readonly command: readonly string[];
  /** The same program as the command line, without its arguments. */
  readonly cli: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
  /** For the log. */
  readonly node: string;
}

/** Who this program is, as it says hello. */
export function clientInfo(): ClientInfo {
  return {
    name: 'holdfast-vscode',
    version: __VERSION__,
    build: __BUILD_ID__,
    builtAt: Date.parse(__BUILD_TIME__),
  };
}

/**
 * How the supervisor that came with us is started: with the Node that was named, else the one on PATH, else with the one
 * inside VS Code. Errors: `not_supported` when none of them will do.
 */
export async function supervisorProgram(options: {
  readonly bundle: string;
  /** Path of a Node that a person chose; empty for none. */
  readonly node: string;
  readonly environment: NodeJS.ProcessEnv;
}): Promise<SupervisorProgram> {
  const { bundle, node } = options;
  if (!existsSync(bundle)) {
    throw new HoldfastError('not_found', 'The supervisor is missing', {
      why: `there is no ${bundle}`,
      next: 'install the extension again',
    });
  }
  const environment = ownEnvironment(options.environment);
  if (node !== '') {
    if (!(await canRun(node, environment))) throw unfit(`${node}, which holdfast.node names, cannot run it`);
    return { ...programOf(node, bundle), environment, node };
  }
  if (await canRun('node', environment)) {
    return { ...programOf('node', bundle), environment, node: 'node on PATH' };
  }
  const inside = {
    ...environment,
    ELECTRON_RUN_AS_NODE: '1',
    HOLDFAST_IDLE_SHUTDOWN_MS: String(LEAVE_AFTER_MS),
  };
  if (await canRun(process.execPath, inside)) {
    return {
      ...programOf(process.execPath, bundle),
      environment: inside,
      node: "VS Code's own",
    };
  }
  throw unfit(`neither the "node" on PATH nor VS Code's own (${process.versions.node}) can run it`);
}

function programOf(node: string, bundle: string): Pick<SupervisorProgram, 'command' | 'cli'> {
  return { command: supervisorCommand(node, bundle), cli: [node, ...SMALL, bundle] };
}

/** The bundle beside the extension's own. */
export function bundledSupervisor(extensionPath: string): string {
  return join(extensionPath, 'dist', 'holdfast.cjs');
}

function unfit(why: string): HoldfastError {
  return new HoldfastError('not_supported', 'The supervisor cannot be started', {
    why,
    next: `install Node ${LEAST_NODE} or newer, or name one in the setting holdfast.node`,
  });
}

/** What VS Code tells its own processes is not for one that outlives them. */
function ownEnvironment(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(
    Object.entries(environment).filter(([name]) => !/^(VSCODE_|ELECTRON_|NODE_OPTIONS$)/.test(name)),
  );
}

function canRun(node: string, environment: NodeJS.ProcessEnv): Promise<boolean> {
  return new Promise((resolve) => {
    execFile(node, ['-e', PROBE], { env: environment, timeout: PROBE_MS, windowsHide: true }, (error) => {
      resolve(error === null);
    });
  });
}
