import { HoldfastError } from '../../protocol/errors.ts';
import type { Profile } from '../../protocol/profile.ts';
import type { Engine } from '../engine/port.ts';
import { runInAgent } from './agent-programs.ts';
import type { SetupCommand } from './setup-commands.ts';

type Repository = NonNullable<NonNullable<Profile['workspace']>['repository']>;

const CLONE = 'clone';
/** Variables that the clone alone has. */
const USER = 'CLONE_USER';
export const CLONE_PASSWORD = 'CLONE_PASSWORD';

/** Git's own protocol to one server: no hook, no program of a configuration, no submodule, no other kind of address. */
const SETTINGS = [
  'core.hooksPath=/dev/null',
  'core.fsmonitor=false',
  'protocol.allow=never',
  'protocol.http.allow=always',
  'protocol.https.allow=always',
  'submodule.recurse=false',
  'credential.helper=',
];

/** Asked with `get` for the one server; what it answers is in the memory of the clone alone. */
const HELPER = `!f() { test "$1" = get && printf 'username=%s\\npassword=%s\\n' "$${USER}" "$${CLONE_PASSWORD}"; }; f`;

/** "$@": options of git, the address, what to fetch, and options of the fetch. */
const SCRIPT = `set -e
url=$1 ref=$2 depth=$3
shift 3
git "$@" init -q --template= .
git "$@" remote add origin "$url"
git "$@" fetch --no-recurse-submodules --no-tags \${depth:+--depth "$depth"} origin "\${ref:-HEAD}"
case $ref in
  '') name=$(git "$@" ls-remote --symref origin HEAD | sed -n 's|^ref: refs/heads/\\([^[:space:]]*\\).*|\\1|p') ;;
  *) name=$(git "$@" ls-remote --heads origin "refs/heads/$ref" | sed -n 's|.*refs/heads/||p') ;;
esac
if [ -n "$name" ]; then
  git "$@" update-ref "refs/remotes/origin/$name" FETCH_HEAD
  git "$@" checkout -q -b "$name" FETCH_HEAD
  git "$@" branch -q --set-upstream-to "origin/$name"
else
  git "$@" checkout -q --detach FETCH_HEAD
fi
rm -f .git/FETCH_HEAD
git "$@" log -1 --format='%H %s'`;

/** Whether this command is the clone of a repository. */
export function isClone({ name }: SetupCommand): boolean {
  return name === CLONE;
}

/** Whether the sandbox, in which nothing else runs, can clone. Its shell may be anything. Errors: those of `runBriefly`. */
export async function hasGit(
  engine: Pick<Engine, 'exec' | 'stopAgent'>,
  sandboxId: string,
  signal: AbortSignal,
  limitMs?: number,
): Promise<boolean> {
  const asked = { execId: 'setup-git', command: ['sh', '-c', 'command -v git'] };
  return (await runInAgent(engine, sandboxId, asked, signal, limitMs)) === 0;
}

export function gitMissingError(image: string): HoldfastError {
  return new HoldfastError('setup_failed', 'The repository cannot be cloned', {
    why: `${image} has no git, and a git that the setup installs could read the secret of the repository`,
    next: 'begin with an image that has git, such as holdfast/agent',
  });
}

/** The host that the clone reaches, as in an egress rule. */
export function hostOf({ url }: Repository): string {
  const { protocol, hostname, port } = new URL(url);
  return `${hostname}:${port === '' ? (protocol === 'http:' ? '80' : '443') : port}`;
}

/** Clones a repository into an empty workspace. No credential is in its configuration afterwards. */
export function cloneCommand(
  { url, ref, depth, user, secret }: Repository,
  env: Readonly<Record<string, string>>,
): SetupCommand {
  const settings = [
    ...SETTINGS,
    ...(secret === undefined ? [] : [`credential.${new URL(url).origin}.helper=${HELPER}`]),
  ];
  const options = settings.flatMap((one) => ['-c', one]);
  return {
    name: CLONE,
    command: ['sh', '-c', SCRIPT, 'sh', url, ref ?? '', depth === undefined ? '' : String(depth), ...options],
    shown: `git clone ${url}`,
    env: {
      ...env,
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_TERMINAL_PROMPT: '0',
      [USER]: user ?? 'x-access-token',
    },
    ...(secret === undefined ? {} : { secret }),
  };
}
