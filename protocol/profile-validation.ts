import { HOST_MACHINE, type HostPattern, isLoopback, parseHostPattern } from './egress.ts';
import { type Profile, seedOf } from './profile.ts';

/** What no sandbox can be started with, although it has the form that the schema asks for. */
export interface StartProblem {
  readonly path: readonly string[];
  /** What is wrong and what would be right, for a person. */
  readonly message: string;
}

const MIB = 2 ** 20;
/** Measured: a shell answers with 6 MiB, the least that engines allow, a Python handler with 8, a Node handler with 32. */
export const MIN_MEMORY_BYTES = 32 * MIB;
/** Larger ones cannot be told from their neighbours, and an engine takes 64-bit integers only. */
export const MAX_SIZE_BYTES = Number.MAX_SAFE_INTEGER;
/** The least that engines allow. */
export const MIN_CPUS = 0.01;
/** Linux gives a program at most this many bytes in one variable or argument, its end included. */
const LARGEST_STRING = 128 * 1024;
/** Names of the variables by which a sandbox's own programs are told what to do. */
const RESERVED = /^HOLDFAST_/i;

/**
 * What deploy refuses because every sandbox of the profile would fail to start. It stands apart from the schema: a profile that was
 * deployed by an earlier program is still read.
 */
export function findStartProblems(profile: Profile): StartProblem[] {
  const found: StartProblem[] = [];
  const report = (path: readonly string[], message: string): void => void found.push({ path, message });
  const { limits, workspace, agent, env, checks } = profile;

  if (limits?.memory !== undefined && limits.memory < MIN_MEMORY_BYTES)
    report(['limits', 'memory'], `a sandbox needs at least ${MIN_MEMORY_BYTES / MIB}MiB to start`);
  if (limits?.cpus !== undefined && limits.cpus < MIN_CPUS)
    report(['limits', 'cpus'], `an engine gives at least ${MIN_CPUS} of a processor`);
  const sizes: readonly (readonly [readonly string[], number | undefined])[] = [
    [['limits', 'memory'], limits?.memory],
    [['limits', 'output'], limits?.output],
    [['workspace', 'limit'], workspace?.limit],
  ];
  for (const [path, size] of sizes) {
    if (size !== undefined && size > MAX_SIZE_BYTES)
      report(path, 'a size of at most 8191TiB; larger ones are beyond what an engine can count');
  }

  for (const [name, value] of Object.entries(env ?? {})) {
    if (RESERVED.test(name))
      report(['env', name], 'names that begin with HOLDFAST_ are reserved for the sandbox itself');
    else if (value.includes('\0')) report(['env', name], 'no variable can hold a NUL character');
    else if (Buffer.byteLength(name) + Buffer.byteLength(value) + 2 > LARGEST_STRING)
      report(['env', name], 'a variable with its name has at most 128 KiB; put longer text into a file');
  }
  const texts: (readonly [readonly string[], string])[] = Object.entries(checks ?? {}).map(
    ([name, command]) => [['checks', name], command],
  );
  if (agent.protocol !== 'handler')
    texts.push(
      ...agent.command.map((word, at): readonly [readonly string[], string] => [
        ['agent', 'command', String(at)],
        word,
      ]),
    );
  const seed = seedOf(profile);
  if (seed !== null) texts.push([['workspace', 'seed'], seed.folder]);
  // Paths in the history begin at the top of the repository.
  if (seed?.git === true && !/^\.?(?:\/\.?)*$/.test(seed.folder))
    report(
      ['workspace', 'seed', 'path'],
      'with `git: true` a workspace begins with the whole project; leave it out',
    );
  for (const [path, text] of texts) if (text.includes('\0')) report(path, 'it must not hold a NUL character');
  return found;
}

/** Names that somebody else can register names below: a rule for all of them lets an agent send data to anybody. */
const SHARED_SUFFIXES: ReadonlySet<string> = new Set([
  'github.io',
  'gitlab.io',
  'pages.dev',
  'workers.dev',
  'vercel.app',
  'netlify.app',
  'herokuapp.com',
  'web.app',
  'firebaseapp.com',
  'fly.dev',
  'onrender.com',
  'amazonaws.com',
  'cloudfront.net',
  'azurewebsites.net',
  'core.windows.net',
  'blob.core.windows.net',
  'googleapis.com',
  'googleusercontent.com',
  'ngrok.io',
  'ngrok-free.app',
  'trycloudflare.com',
  'nip.io',
  'sslip.io',
]);
/** Second-level names below which a country's registry sells names. */
const REGISTRY_LABELS = /^(ac|co|com|edu|gob|gov|go|mil|ne|net|nom|or|org)\.[a-z]{2}$/;

/**
 * Why a wildcard allows more than its author may have meant; null where it does not seem to. A hint, not a boundary: the list of such
 * names changes every day.
 */
export function explainWideWildcard({ host, wildcard }: HostPattern): string | null {
  if (!wildcard) return null;
  if (!host.includes('.'))
    return `it allows every name below the top-level domain ${host}, which anybody can register`;
  if (SHARED_SUFFIXES.has(host) || REGISTRY_LABELS.test(host))
    return `anybody can register a name below ${host}`;
  return null;
}

/** A base URL that leads to where it is used: scheme, host, `:port`. */
const LOOPBACK_URL =
  /\b([a-z][a-z0-9+.-]*):\/\/(?:[^/@\s]*@)?(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?(?=[/?#\s]|$)/i;

/** What a person should know about a profile that can be deployed. `memory`: bytes of the machine that runs it; null where not known. */
export function findProfileWarnings(
  { egress = [], env = {}, limits }: Profile,
  memory: number | null,
): string[] {
  const found: string[] = [];
  for (const { host, quiet } of egress) {
    // That one denies.
    if (quiet === true) continue;
    const pattern = parseHostPattern(host);
    const why = 'refused' in pattern ? null : explainWideWildcard(pattern);
    if (why !== null) found.push(`the egress rule ${host} is wide: ${why}; name the hosts that are needed`);
    if (!('refused' in pattern) && isLoopback(pattern.host))
      found.push(
        `the egress rule ${host} holds for programs that use the proxy even for ${pattern.host}: in a sandbox that is the sandbox itself; ` +
          `call your machine ${HOST_MACHINE.name}:${pattern.port ?? 'PORT'}`,
      );
  }
  for (const [name, value] of Object.entries(env)) {
    const [, scheme, host, port = ''] = LOOPBACK_URL.exec(value) ?? [];
    if (host === undefined) continue;
    const place = `${HOST_MACHINE.name}${port}`;
    found.push(
      `env.${name} leads to ${host}${port}, which in a sandbox is the sandbox itself; for a service of your machine use ` +
        `${scheme}://${place} and the egress rule { host: "${port === '' ? `${place}:PORT` : place}" }`,
    );
  }
  if (memory !== null && limits?.memory !== undefined && limits.memory > memory)
    found.push(
      `limits.memory is more than the ${Math.floor(memory / MIB)}MiB that this machine has: it limits nothing`,
    );
  return found;
}
