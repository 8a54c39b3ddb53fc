import { type ChildProcess, spawn } from 'node:child_process';
import { accessSync, constants, closeSync, openSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { Duplex } from 'node:stream';
import { HoldfastError } from '../../protocol/errors.ts';
import { Multiplexer } from '../../protocol/wire/multiplexer.ts';
import type { RunningProxy } from './proxy-process.ts';

const WHAT = 'Cannot start the egress proxy as a process of this machine';
/** Nothing else has it, neither here nor in a container. */
const UID = 64_321;
const HEAP_MB = 128;
const START_MS = 20_000;
const SHOWN_CHARACTERS = 2048;
/** Its program may be where its uid cannot go, so that it is handed over open. */
const PROGRAM_FD = 3;
const NODE_FD = 4;
const BOOT = `const Module = require('node:module');
new Module('egress-proxy')._compile(require('node:fs').readFileSync(${String(PROGRAM_FD)}, 'utf8'), '/egress-proxy.cjs');`;
const DATA_BYTES = 640 * 2 ** 20;
const TOOLS = ['unshare', 'prlimit', 'setpriv'] as const;

/** Why the proxy cannot be a process of this machine without rights and network; null if it can. */
export function childProblem(env: NodeJS.ProcessEnv = process.env): string | null {
  if (process.platform !== 'linux') return 'only Linux can take network and rights away from a process';
  if (process.getuid?.() !== 0) return 'the supervisor does not run as root';
  const missing = TOOLS.filter((tool) => !isInPath(tool, env['PATH'] ?? ''));
  return missing.length === 0 ? null : `there is no ${missing.join(' and no ')} (util-linux)`;
}

/**
 * Starts the process that reads what sandboxes send without a container: with a uid that nothing else has, without
 * capabilities, and in a network namespace of its own that has nothing. Its input and output carry all connections. It
 * sees the files of this machine that everybody may read. Errors: `not_supported`.
 */
export async function startProxyChild(program: string): Promise<RunningProxy> {
  const why = childProblem();
  if (why !== null) throw new HoldfastError('not_supported', WHAT, { why });
  const child = spawnChild(program);
  const { stdin, stdout, stderr } = child;
  if (stdin === null || stdout === null || stderr === null) throw new HoldfastError('internal', WHAT);
  let complaint = '';
  stderr.on('data', (chunk: Buffer) => {
    if (complaint.length < SHOWN_CHARACTERS) complaint += chunk.toString('utf8', 0, SHOWN_CHARACTERS);
  });
  const { promise: exited, resolve: ended } = Promise.withResolvers<string>();
  child.once('error', (error) => ended(error.message));
  child.once('close', (code, signal) => ended(complaint.trim() || `it ended with ${String(code ?? signal)}`));
  stdin.on('error', () => undefined);
  const multiplexer = new Multiplexer({ carrier: Duplex.from({ readable: stdout, writable: stdin }) });
  const late = setTimeout(() => child.kill('SIGKILL'), START_MS);
  try {
    if (!(await multiplexer.greeted)) {
      child.kill('SIGKILL');
      throw new HoldfastError('not_supported', WHAT, { why: await exited });
    }
  } finally {
    clearTimeout(late);
  }
  return {
    dial: () => Promise.resolve(multiplexer.open()),
    exited,
    stop: async () => {
      child.kill('SIGKILL');
      await exited;
    },
  };
}

function spawnChild(program: string): ChildProcess {
  const opened: number[] = [];
  try {
    for (const path of [program, process.execPath]) opened.push(openSync(path, 'r'));
    const [source, node] = opened;
    if (source === undefined || node === undefined) throw new HoldfastError('internal', WHAT);
    const id = String(UID);
    return spawn(
      'unshare',
      [
        ...['--net', '--ipc', '--uts', '--', 'prlimit', `--data=${String(DATA_BYTES)}`, '--nproc=64'],
        ...['--core=0', '--fsize=0', '--', 'setpriv', `--reuid=${id}`, `--regid=${id}`, '--clear-groups'],
        ...['--no-new-privs', '--inh-caps=-all', '--bounding-set=-all', '--pdeathsig=KILL', '--'],
        ...[`/proc/self/fd/${String(NODE_FD)}`, `--max-old-space-size=${String(HEAP_MB)}`, '-e', BOOT],
      ],
      {
        cwd: '/',
        env: { PATH: process.env['PATH'] ?? '', HOME: '/', LANG: 'C.UTF-8' },
        stdio: ['pipe', 'pipe', 'pipe', source, node],
      },
    );
  } finally {
    for (const fd of opened) closeSync(fd);
  }
}

function isInPath(name: string, path: string): boolean {
  return path.split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, name), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
