import { OWN_HOME } from './agent-config.ts';
import { repeatedCredentials } from './credentials.ts';
import { HOST_MACHINE, type HostPattern, isLoopback, parseHostPattern } from './egress.ts';
import { looksLikeKey } from './key-hint.ts';
import { type Profile, presetOf, seedOf } from './profile.ts';
import { resumeScriptOf } from './setup.ts';
import { protocolsThatRun, runsAs } from './turn-kinds.ts';

/** A value that matches the schema but with which no sandbox can start. */
export interface StartProblem {
  readonly path: readonly string[];
  /** What is wrong and what is allowed, for people. */
  readonly message: string;
}

const MIB = 2 ** 20;
/** Measured: a shell starts with 6 MiB (the minimum of engines), a Python handler with 8, a Node handler with 32. */
export const MIN_MEMORY_BYTES = 32 * MIB;
/** Larger numbers are not exact, and engines accept 64-bit integers only. */
export const MAX_SIZE_BYTES = Number.MAX_SAFE_INTEGER;
/** The minimum of engines. */
export const MIN_CPUS = 0.01;
/** Linux limits one argument or environment variable to this size, including its terminating NUL. */
const MAX_STRING_BYTES = 128 * 1024;
/** Names of variables that configure our own programs in the sandbox. */
const RESERVED = /^HOLDFAST_/i;

/** With its NUL. */
function fitsString(text: string): boolean {
  return Buffer.byteLength(text) < MAX_STRING_BYTES;
}

/**
 * Finds what deploy refuses because no sandbox of the profile could start. This is not part of the schema, so that a
 * profile deployed by an earlier version can still be read.
 */
export function findStartProblems(profile: Profile): StartProblem[] {
  const found: StartProblem[] = [];
  const report = (path: readonly string[], message: string): void => void found.push({ path, message });
  const { limits, workspace, agent, env, checks } = profile;

  if (limits?.memory !== undefined && limits.memory < MIN_MEMORY_BYTES)
    report(['limits', 'memory'], `a sandbox needs at least ${MIN_MEMORY_BYTES / MIB}MiB to start`);
  if (limits?.cpus !== undefined && limits.cpus < MIN_CPUS)
    report(['limits', 'cpus'], `a sandbox needs at least ${MIN_CPUS} of a processor`);
  for (const name of ['tokens', 'cost'] as const) {
    if (limits?.[name] !== undefined && !runsAs(agent, 'conversation'))
      report(['limits', name], `only an agent with ${protocolsThatRun('conversation')} reports what it uses`);
  }
  const sizes: readonly (readonly [readonly string[], number | undefined])[] = [
    [['limits', 'memory'], limits?.memory],
    [['limits', 'output'], limits?.output],
    [['limits', 'home'], limits?.home],
    [['workspace', 'limit'], workspace?.limit],
  ];
  for (const [path, size] of sizes) {
    if (size !== undefined && size > MAX_SIZE_BYTES) report(path, 'a size may be at most 8191TiB');
  }

  for (const [name, value] of Object.entries(env ?? {})) {
    if (RESERVED.test(name))
      report(['env', name], 'names that begin with HOLDFAST_ are reserved for the sandbox itself');
    else if (value.includes('\0')) report(['env', name], 'a variable must not contain a NUL character');
    else if (Buffer.byteLength(name) + Buffer.byteLength(value) + 2 > MAX_STRING_BYTES)
      report(['env', name], 'a variable with its name may have at most 128 KiB; put longer text into a file');
  }
  const texts: (readonly [readonly string[], string])[] = Object.entries(checks ?? {}).map(
    ([name, command]) => [['checks', name], command],
  );
  if ('command' in agent)
    texts.push(
      ...agent.command.map((word, at): readonly [readonly string[], string] => [
        ['agent', 'command', String(at)],
        word,
      ]),
    );
  if (agent.config === OWN_HOME && presetOf(agent) === null)
    report(
      ['agent', 'config'],
      '`~` needs a `preset`, which says what in your HOME is configuration; or name a folder of the project',
    );
  const images = (['image', 'dockerfile', 'devcontainer'] as const).filter(
    (name) => profile[name] !== undefined,
  );
  for (const name of images.slice(1))
    report([name], `it says what the image is, and so does \`${images[0] ?? ''}\`; keep one of them`);
  for (const name of repeatedCredentials(profile.credentials ?? []))
    report(['credentials'], `${name} stands there more than once`);
  const seed = seedOf(profile);
  if (seed !== null) texts.push([['workspace', 'seed'], seed.folder]);
  if (workspace?.repository !== undefined && seed !== null)
    report(
      ['workspace', 'seed'],
      'a workspace begins with the repository or with the project; omit `seed`, or `repository`',
    );
  // Paths in the git history are relative to the top of the repository.
  if (seed?.git === true && !/^\.?(?:\/\.?)*$/.test(seed.folder))
    report(
      ['workspace', 'seed', 'path'],
      'with `git: true` a workspace starts with the whole project; omit `path`',
    );
  for (const [at, script] of [profile.setup?.run ?? []].flat().entries())
    if (!fitsString(script)) report(['setup', 'run', String(at)], 'a command must have less than 128 KiB');
  if (profile.setup?.resume !== undefined && !fitsString(resumeScriptOf(profile.setup.resume)))
    report(['setup', 'resume'], 'the commands together must have less than 128 KiB');
  for (const [path, text] of texts)
    if (text.includes('\0')) report(path, 'it must not contain a NUL character');
  return found;
}

/** Domains under which anybody can register names: a wildcard rule lets the agent send data to anybody. */
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
/** Second-level domains under which country registries sell names. */
const REGISTRY_LABELS = /^(ac|co|com|edu|gob|gov|go|mil|ne|net|nom|or|org)\.[a-z]{2}$/;

/**
 * Explains why a wildcard may allow more than its author intended; null if it does not seem to. This is a hint and not
 * a security boundary: the list of such domains changes every day.
 */
export function explainWideWildcard({ host, wildcard }: HostPattern): string | null {
  if (!wildcard) return null;
  if (!host.includes('.'))
    return `it allows every name under the top-level domain ${host}, where anybody can register names`;
  if (SHARED_SUFFIXES.has(host) || REGISTRY_LABELS.test(host))
    return `anybody can register a name under ${host}`;
  return null;
}

/** Domains whose servers answer for the names of many customers, at the same addresses. */
const SHARED_FRONTS: ReadonlySet<string> = new Set([
  'akamaihd.net',
  'akamaized.net',
  'azureedge.net',
  'azurefd.net',
  'b-cdn.net',
  'cloudfront.net',
  'edgekey.net',
  'edgesuite.net',
  'fastly.net',
  'fastlylb.net',
  'github.io',
  'googleapis.com',
  'herokuapp.com',
  'jsdelivr.net',
  'netlify.app',
  'pages.dev',
  'vercel.app',
  'workers.dev',
]);

/**
 * Explains why a server of this host may serve other names too, inside a TLS connection that names this one; null if
 * that is not known. A hint: most such hosts have names of their own.
 */
export function explainSharedFront({ host, port }: HostPattern): string | null {
  if (port === 80) return null;
  const labels = host.split('.');
  const front = labels.map((_, at) => labels.slice(at).join('.')).find((suffix) => SHARED_FRONTS.has(suffix));
  if (front === undefined) return null;
  return (
    `servers of ${front} answer for many names, and inside TLS a program can ask for any of them; ` +
    'only a proxy that ends TLS could tell them apart'
  );
}

/** `default` is the engine's own, usually runc. */
const TESTED_RUNTIMES: ReadonlySet<string> = new Set(['default', 'runc']);

/** A URL that refers to the loopback interface: scheme, host, `:port`. */
const LOOPBACK_URL =
  /\b([a-z][a-z0-9+.-]*):\/\/(?:[^/@\s]*@)?(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?(?=[/?#\s]|$)/i;

/** Finds problems to warn about in a valid profile. `memory`: memory of the machine in bytes, null if unknown. */
export function findProfileWarnings(
  { egress = [], env = {}, limits, runtime }: Profile,
  memory: number | null,
): string[] {
  const found: string[] = [];
  for (const { host, quiet } of egress) {
    // A quiet rule denies.
    if (quiet === true) continue;
    const pattern = parseHostPattern(host);
    const why = 'refused' in pattern ? null : explainWideWildcard(pattern);
    if (why !== null)
      found.push(`the egress rule ${host} is too broad: ${why}; name the hosts that are needed`);
    if (!('refused' in pattern) && isLoopback(pattern.host))
      found.push(
        `the egress rule ${host} refers to the sandbox itself, because ${pattern.host} in a sandbox is the sandbox; ` +
          `use ${HOST_MACHINE.name}:${pattern.port ?? 'PORT'} for your machine`,
      );
  }
  for (const [name, value] of Object.entries(env)) {
    if (looksLikeKey(name, value))
      found.push(
        `env.${name} looks like a key, and every process of the sandbox, \`docker inspect\` and the deployed folder show it; ` +
          `keep it with \`holdfast secret set ${name}\` and name it in \`credentials\``,
      );
    const [, scheme, host, port = ''] = LOOPBACK_URL.exec(value) ?? [];
    if (host === undefined) continue;
    const place = `${HOST_MACHINE.name}${port}`;
    found.push(
      `env.${name} refers to ${host}${port}, which in a sandbox is the sandbox itself; for a service on your machine use ` +
        `${scheme}://${place} and the egress rule { host: "${port === '' ? `${place}:PORT` : place}" }`,
    );
  }
  if (memory !== null && limits?.memory !== undefined && limits.memory > memory)
    found.push(
      `limits.memory is larger than this machine's ${Math.floor(memory / MIB)}MiB and has no effect`,
    );
  if (!TESTED_RUNTIMES.has(runtime))
    found.push(
      `Holdfast is not tested with the runtime ${runtime}; limits may go unreported there, and pauses may fail`,
    );
  return found;
}
