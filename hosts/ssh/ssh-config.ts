import { globSync, readFileSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { parseDestination } from '../base/destination.ts';

const MAX_FILE_BYTES = 1024 * 1024;
const MAX_FILES = 50;
const MAX_DEPTH = 8;
const MAX_HOSTS = 500;

/** The names that `Host` lines of the person's ssh configuration and of what it includes give, without patterns. */
export function configuredHosts(file = join(homedir(), '.ssh', 'config')): readonly string[] {
  const names = new Set<string>();
  let files = 0;
  const read = (path: string, depth: number): void => {
    files += 1;
    if (files > MAX_FILES || depth > MAX_DEPTH) return;
    for (const [keyword, words] of linesOf(path)) {
      if (keyword === 'host') {
        for (const word of words) if (names.size < MAX_HOSTS && isDestination(word)) names.add(word);
      } else if (keyword === 'include') {
        for (const word of words) for (const included of expand(word)) read(included, depth + 1);
      }
    }
  };
  read(file, 0);
  return [...names];
}

function linesOf(path: string): [string, string[]][] {
  let text: string;
  try {
    const { size } = statSync(path);
    if (size > MAX_FILE_BYTES) return [];
    text = readFileSync(path, 'utf8');
  } catch {
    return []; // ssh itself says what is wrong with it
  }
  return text.split('\n').flatMap((line): [string, string[]][] => {
    const [, keyword, rest] = /^\s*([A-Za-z]+)(?:\s*=\s*|\s+)(.*)$/.exec(line) ?? [];
    if (keyword === undefined || rest === undefined) return [];
    const words = [...rest.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain ?? '');
    return [[keyword.toLowerCase(), words]];
  });
}

/** As ssh reads them: relative to `~/.ssh`, with wildcards. */
function expand(word: string): readonly string[] {
  const path = word.startsWith('~/') ? join(homedir(), word.slice(2)) : word;
  const pattern = isAbsolute(path) ? path : join(homedir(), '.ssh', path);
  return /[*?[]/.test(pattern) ? [...globSync(pattern)].sort() : [pattern];
}

function isDestination(word: string): boolean {
  try {
    parseDestination(word);
    return true;
  } catch {
    return false;
  }
}
