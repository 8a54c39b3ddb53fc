import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { HoldfastError } from '../../protocol/errors.ts';
import type { ClientInfo } from '../../protocol/methods.ts';
import { supervisorCommand } from '../../protocol/client/start.ts';

/** The oldest Node that runs the supervisor. It must also have `node:sqlite`. */
const MIN_NODE = 24;
/** The process of a terminal only copies bytes, so it needs little memory. */
const SMALL_HEAP = ['--max-semi-space-size=1', '--max-old-space-size=64'];
const PROBE_MS = 10_000;
const PROBE = `require('node:sqlite');process.exit(Number(process.versions.node.split('.')[0])>=${MIN_NODE}?0:3)`;
/**
 * A supervisor in VS Code's own Node exits when idle, because VS Code cannot be updated while its program is in use.
 */
const LEAVE_AFTER_MS = 10 * 60_000;

export interface SupervisorProgram {
  readonly command: readonly string[];
  /** The same program as the `holdfast` command, without arguments. */
  readonly cli: readonly string[];
  /** Starts the connector of a host. */
  readonly connector: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
  /** Describes the Node, for the log. */
  readonly node: string;
}

/** How this client identifies itself in the protocol's hello. */
export function clientInfo(): ClientInfo {
  return {
    name: 'holdfast-vscode',
    version: __VERSION__,
    build: __BUILD_ID__,
    builtAt: Date.parse(__BUILD_TIME__),
  };
}

/**
 * The command that starts the bundled supervisor: with the Node of the setting `holdfast.node`, else `node` on PATH,
 * else the Node inside VS Code. Errors: `not_supported` where none of them can run it; `not_found` where the bundle is
 * missing.
 */
export async function supervisorProgram(options: {
  readonly bundle: string;
  /** The setting `holdfast.node`; empty where it is not set. */
  readonly node: string;
  readonly environment: NodeJS.ProcessEnv;
}): Promise<SupervisorProgram> {
  const { bundle, node } = options;
  if (!existsSync(bundle)) {
    throw new HoldfastError('not_found', 'The supervisor is missing', {
      why: `there is no ${bundle}`,
      next: 'reinstall the extension',
    });
  }
  const environment = ownEnvironment(options.environment);
  if (node !== '') {
    if (!(await canRun(node, environment)))
      throw noSuitableNode(`${node}, from the setting holdfast.node, cannot run it`);
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
  throw noSuitableNode(`neither the "node" on PATH nor VS Code's own (${process.versions.node}) can run it`);
}

function programOf(node: string, bundle: string): Pick<SupervisorProgram, 'command' | 'cli' | 'connector'> {
  return {
    command: supervisorCommand(node, bundle),
    cli: [node, ...SMALL_HEAP, bundle],
    connector: [node, bundle, 'host-connector'],
  };
}

/** The supervisor's bundle, which is next to the extension's. */
export function bundledSupervisor(extensionPath: string): string {
  return join(extensionPath, 'dist', 'holdfast.cjs');
}

function noSuitableNode(why: string): HoldfastError {
  return new HoldfastError('not_supported', 'The supervisor cannot be started', {
    why,
    next: `install Node ${MIN_NODE} or newer, or set holdfast.node to its path`,
  });
}

/** Without the variables that VS Code sets for its own processes: the supervisor outlives them. */
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
