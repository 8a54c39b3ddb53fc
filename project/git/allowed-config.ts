import type { ConfigEntry } from './config.ts';
import { gitHistoryError } from './error.ts';

const MOST_LINES = 20_000;
const REMOTE = /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;
const BRANCH = /^[\p{L}\p{N}_][\p{L}\p{N}\p{M}_./+#@-]{0,249}$/u;
const REFSPEC = /^\+?refs\/[A-Za-z0-9_./*-]{1,200}:refs\/(?:remotes|heads|tags)\/[A-Za-z0-9_./*-]{1,200}$/;
const HOST = /^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$/;
const PATH = /^[A-Za-z0-9._~/+%@,=-]{1,1000}$/;
/** Extensions that do not affect the copied files. */
const EXTENSIONS: Readonly<Record<string, RegExp>> = {
  noop: /^/,
  'noop-v1': /^/,
  preciousobjects: /^/,
  relativeworktrees: /^/,
  objectformat: /^sha1$/,
  refstorage: /^files$/,
};

/** Errors: `profile_invalid` for a repository format that is not supported. */
export function requireKnownFormat(entries: readonly ConfigEntry[]): void {
  const version = last(entries, 'core', 'repositoryformatversion') ?? '0';
  if (version !== '0' && version !== '1')
    throw gitHistoryError(`the repository format has version ${version}`, PLAIN);
  for (const { section, subsection, key, value } of entries) {
    if (section === 'extensions') {
      const isKnown =
        subsection === null && Object.hasOwn(EXTENSIONS, key) && EXTENSIONS[key]?.test(value ?? 'true');
      if (isKnown !== true)
        throw gitHistoryError(`the repository uses the extension ${key}, which is not supported`, PLAIN);
    }
    if (section === 'remote' && (key === 'promisor' || key === 'partialclonefilter'))
      throw gitHistoryError(
        'the repository is a partial clone, and some of its history is not on this machine',
        PLAIN,
      );
  }
}
const PLAIN = 'deploy a plain clone of it (`git clone --no-local`)';

/**
 * The git config in new workspaces. It is composed of values known to be harmless. Includes, URL rewrites, headers,
 * credentials and programs to run are excluded, because nothing here adds them.
 */
export function allowedConfig(entries: readonly ConfigEntry[]): string {
  const lines = ['[core]', '\trepositoryformatversion = 0'];
  lines.push(`\tfilemode = ${String(flag(last(entries, 'core', 'filemode')) ?? true)}`, '\tbare = false');
  lines.push('\tlogallrefupdates = true');
  if (flag(last(entries, 'core', 'ignorecase')) === true) lines.push('\tignorecase = true');

  const remotes = new Set<string>();
  for (const [name, of] of subsections(entries, 'remote')) {
    const url = withoutCredentials(of.find(({ key }) => key === 'url')?.value ?? '');
    if (!REMOTE.test(name) || name.includes('..') || url === null) continue;
    remotes.add(name);
    lines.push(`[remote ${quoted(name)}]`, `\turl = ${quoted(url)}`);
    for (const { key, value } of of)
      if (key === 'fetch' && value !== null && REFSPEC.test(value)) lines.push(`\tfetch = ${quoted(value)}`);
  }
  for (const [name, of] of subsections(entries, 'branch')) {
    const remote = of.findLast(({ key }) => key === 'remote')?.value ?? '';
    const merge = of.findLast(({ key }) => key === 'merge')?.value ?? '';
    const isPlain = isBranch(name) && merge.startsWith(HEADS) && isBranch(merge.slice(HEADS.length));
    if (!isPlain || !(remote === '.' || remotes.has(remote))) continue;
    lines.push(`[branch ${quoted(name)}]`, `\tremote = ${quoted(remote)}`, `\tmerge = ${quoted(merge)}`);
  }
  if (lines.length > MOST_LINES)
    throw gitHistoryError(
      `the repository's config names more than ${MOST_LINES / 3} branches`,
      'delete old branches',
    );
  return `${lines.join('\n')}\n`;
}
const HEADS = 'refs/heads/';

/** The URL without user, password, query and fragment; null for an unknown form. */
export function withoutCredentials(address: string): string | null {
  if (address.length > 2000 || /[^\x21-\x7e]|[\\"'`]/.test(address)) return null;
  const short = /^(?:([^@/:]+)@)?([^@/:]+):(?![:/])([^:]+)$/.exec(address);
  if (short !== null) {
    const [, user, host = '', path = ''] = short;
    // A single letter is a drive.
    if (host.length < 2 || !HOST.test(host) || !PATH.test(path)) return null;
    return `${user === 'git' ? 'git@' : ''}${host}:${path}`;
  }
  if (!/^(?:https|ssh|git):\/\//i.test(address) || !URL.canParse(address)) return null;
  const { protocol, username, hostname, port, pathname } = new URL(address);
  if (!HOST.test(hostname) || !PATH.test(pathname)) return null;
  const user = protocol === 'ssh:' && username === 'git' ? 'git@' : '';
  return `${protocol}//${user}${hostname}${port === '' ? '' : `:${port}`}${pathname}`;
}

function isBranch(name: string): boolean {
  return BRANCH.test(name) && !name.includes('..') && !name.endsWith('.lock');
}

function last(entries: readonly ConfigEntry[], section: string, key: string): string | null | undefined {
  const found = entries.findLast(
    (one) => one.section === section && one.subsection === null && one.key === key,
  );
  return found === undefined ? undefined : (found.value ?? 'true');
}

function flag(value: string | null | undefined): boolean | null {
  if (value === undefined || value === null) return null;
  if (/^(?:true|yes|on|1)$/i.test(value)) return true;
  return /^(?:false|no|off|0|)$/i.test(value) ? false : null;
}

/** The entries by name of the subsection. */
function subsections(entries: readonly ConfigEntry[], section: string): Map<string, ConfigEntry[]> {
  const found = new Map<string, ConfigEntry[]>();
  for (const entry of entries) {
    if (entry.section !== section || entry.subsection === null) continue;
    const of = found.get(entry.subsection) ?? [];
    of.push(entry);
    found.set(entry.subsection, of);
  }
  return found;
}

/** Quotes as git does; none of the values contains the escaped characters. */
function quoted(value: string): string {
  return `"${value.replaceAll(/["\\]/g, '\\$&')}"`;
}
