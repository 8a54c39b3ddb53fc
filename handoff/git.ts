import { spawn } from 'node:child_process';
import { devNull } from 'node:os';
import { delimiter, isAbsolute } from 'node:path';
import { HoldfastError } from '../protocol/errors.ts';
import { isDiskFull } from './full-disk.ts';

const MOST_OUTPUT = 256 * 2 ** 20;
const MOST_ERRORS = 64 * 1024;
/** Git works on the person's disk and asks nobody; a signing program may ask for a passphrase. */
const TIMEOUT_MS = 10 * 60_000;

/**
 * Variables that would name another repository, and those that name programs. `GIT_SSH…` and the like are not needed: nothing here
 * uses the network.
 */
const DROPPED = [
  ...[
    'GIT_DIR',
    'GIT_WORK_TREE',
    'GIT_INDEX_FILE',
    'GIT_COMMON_DIR',
    'GIT_OBJECT_DIRECTORY',
    'GIT_NAMESPACE',
  ],
  ...['GIT_ALTERNATE_OBJECT_DIRECTORIES', 'GIT_EXTERNAL_DIFF', 'GIT_EDITOR', 'GIT_PAGER', 'GIT_TEMPLATE_DIR'],
  ...['GIT_REPLACE_REF_BASE', 'GIT_GRAFT_FILE', 'GIT_PREFIX', 'GIT_ATTR_SOURCE', 'GIT_EXEC_PATH'],
];

/** Neither hooks, nor a file system monitor, nor a collection in the background: git starts no program but its own. */
const SETTINGS = [
  ...['-c', `core.hooksPath=${devNull}`, '-c', 'core.fsmonitor=false', '-c', 'core.pager=cat'],
  // Paths that another system would take for `.git` are refused everywhere.
  ...['-c', 'core.protectHFS=true', '-c', 'core.protectNTFS=true'],
  // What a handoff makes, and what it keeps for its undo, is on disk before the next step relies on it.
  ...['-c', 'core.fsync=committed', '-c', 'core.fsyncMethod=batch'],
  ...['-c', 'gc.auto=0', '-c', 'maintenance.auto=false', '-c', 'submodule.recurse=false'],
];

export interface GitOptions {
  readonly input?: Uint8Array | AsyncIterable<Uint8Array> | undefined;
  /** Further variables. */
  readonly env?: Readonly<Record<string, string>> | undefined;
  /** Exit codes that are no failure. Default: 0. */
  readonly accept?: readonly number[] | undefined;
  /** What failed, for people: `The branch could not be created`. */
  readonly what?: string | undefined;
}

export interface GitResult {
  readonly code: number;
  readonly output: Buffer;
}

/** Git in one folder of the person's. It is never run in a folder that an agent writes. */
export class Git {
  readonly folder: string;
  readonly #env: Readonly<Record<string, string | undefined>>;
  readonly #signal: AbortSignal | undefined;
  readonly #extra: Readonly<Record<string, string>>;
  readonly #settings: readonly string[];

  constructor(
    folder: string,
    env: Readonly<Record<string, string | undefined>>,
    signal?: AbortSignal,
    extra: Readonly<Record<string, string>> = {},
    settings: readonly string[] = [],
  ) {
    this.folder = folder;
    this.#env = env;
    this.#signal = signal;
    this.#extra = extra;
    this.#settings = settings;
  }

  in(folder: string): Git {
    return new Git(folder, this.#env, this.#signal, this.#extra, this.#settings);
  }

  /** With further settings, as `name=value`. */
  configured(settings: readonly string[]): Git {
    return new Git(this.folder, this.#env, this.#signal, this.#extra, [...this.#settings, ...settings]);
  }

  /** With further variables, which win over those of each call. */
  with(extra: Readonly<Record<string, string>>): Git {
    return new Git(this.folder, this.#env, this.#signal, { ...this.#extra, ...extra }, this.#settings);
  }

  /** Git that finishes what it does when the handoff is cancelled, for taking things back. */
  withoutSignal(): Git {
    return new Git(this.folder, this.#env, undefined, this.#extra, this.#settings);
  }

  /** Errors: `conflict` with what git said, `not_found` without git, `output_limit`. */
  async run(command: readonly string[], options: GitOptions = {}): Promise<GitResult> {
    const { accept = [0], what = `git ${command[0] ?? ''} failed` } = options;
    const { code, output, errors } = await this.#spawn(command, options);
    if (code !== null && accept.includes(code)) return { code, output };
    const said = errors.toString('utf8').trim().slice(0, 2000);
    if (await isDiskFull(this.folder, said)) {
      throw new HoldfastError('no_space', what, {
        why: `the disk is full; git says: ${said}`,
        next: 'free some space and try again',
      });
    }
    throw new HoldfastError('conflict', what, {
      why: `git says: ${said || `exit code ${code}`}`,
      next: 'nothing was changed; correct it and try again',
    });
  }

  async bytes(command: readonly string[], options: GitOptions = {}): Promise<Buffer> {
    return (await this.run(command, options)).output;
  }

  /** Its output without the newline at the end. */
  async text(command: readonly string[], options: GitOptions = {}): Promise<string> {
    return (await this.bytes(command, options)).toString('utf8').replace(/\n$/, '');
  }

  /** As `text`; null if git fails, which is how it says that there is no such thing. */
  async ask(command: readonly string[], options: GitOptions = {}): Promise<string | null> {
    const { code, output } = await this.#spawn(command, options);
    return code === 0 ? output.toString('utf8').replace(/\n$/, '') : null;
  }

  async #spawn(
    command: readonly string[],
    { input, env }: GitOptions,
  ): Promise<{ code: number | null; output: Buffer; errors: Buffer }> {
    const deadline = AbortSignal.timeout(TIMEOUT_MS);
    const signal = this.#signal === undefined ? deadline : AbortSignal.any([this.#signal, deadline]);
    signal.throwIfAborted();
    const variables: Record<string, string | undefined> = { ...this.#env };
    for (const name of DROPPED) variables[name] = undefined;
    // In a folder with an agent's files, nothing is looked up.
    const path = variables['PATH']?.split(delimiter).filter(isAbsolute).join(delimiter);
    const settings = this.#settings.flatMap((setting) => ['-c', setting]);
    const child = spawn('git', [...SETTINGS, ...settings, ...command], {
      cwd: this.folder,
      stdio: ['pipe', 'pipe', 'pipe'],
      signal,
      env: {
        ...variables,
        PATH: path,
        GIT_ALLOW_PROTOCOL: 'none',
        GIT_LITERAL_PATHSPECS: '1',
        GIT_NO_LAZY_FETCH: '1',
        GIT_NO_REPLACE_OBJECTS: '1',
        GIT_OPTIONAL_LOCKS: '0',
        GIT_TERMINAL_PROMPT: '0',
        LC_ALL: 'C',
        ...env,
        ...this.#extra,
      },
    });
    const output: Buffer[] = [];
    const errors: Buffer[] = [];
    let size = 0;
    let errorSize = 0;
    child.stdout.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > MOST_OUTPUT) child.kill();
      else output.push(chunk);
    });
    child.stderr.on('data', (chunk: Buffer) => {
      errorSize += chunk.length;
      if (errorSize <= MOST_ERRORS) errors.push(chunk);
    });
    const ended = new Promise<number | null>((resolve, reject) => {
      child.on('error', reject);
      child.on('close', resolve);
    });
    try {
      const [code] = await Promise.all([ended, feed(child.stdin, input)]);
      if (size > MOST_OUTPUT)
        throw new HoldfastError('output_limit', `git ${command[0] ?? ''} printed too much`);
      return { code, output: Buffer.concat(output), errors: Buffer.concat(errors) };
    } catch (error) {
      child.kill();
      if (isMissing(error)) {
        throw new HoldfastError('not_found', 'Git is not installed on this machine', {
          next: 'install git, and try again',
          cause: error,
        });
      }
      throw error;
    }
  }
}

type Stdin = ReturnType<typeof spawn>['stdin'];

/** Writes the input. That git ends before it has read everything is for its exit code to say. */
async function feed(stdin: Stdin, input: GitOptions['input']): Promise<void> {
  if (stdin === null) return;
  let isBroken = false;
  let wake = (): void => undefined;
  stdin.on('error', () => {
    isBroken = true;
    wake();
  });
  stdin.on('close', () => wake());
  const write = async (chunk: Uint8Array): Promise<void> => {
    if (isBroken || stdin.destroyed || stdin.write(chunk)) return;
    await new Promise<void>((resolve) => {
      wake = resolve;
      stdin.once('drain', resolve);
      if (stdin.destroyed) resolve();
    });
  };
  if (input instanceof Uint8Array) await write(input);
  else if (input !== undefined) for await (const chunk of input) await write(chunk);
  stdin.end();
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}
