import { PlainIgnoreRules } from './plain-ignore.ts';

/** Bytes of a path as latin1, without a slash at either end: a character for each byte. */
type RawPath = string;

/** Bounds for ignore files, which an agent may have written. */
const MAX_IGNORE_FILES = 200;

/**
 * Those of `paths` that ignore files name, but for parts of a git repository. `read` has the ignore file of a folder as latin1, with
 * an empty path for the top; null for none. At most 200 are read, those of outer folders first.
 */
export async function ignoredPaths(
  paths: readonly RawPath[],
  read: (folder: RawPath) => Promise<string | null>,
): Promise<Set<RawPath>> {
  const rules = new PlainIgnoreRules();
  const known = new Set<RawPath>();
  const ignored = new Set<RawPath>();
  const byDepth = paths
    .map((path) => ({ path, names: path.split('/') }))
    .filter(({ names }) => !names.includes('.git'))
    // The rules of outer folders come first: most of what is ignored needs no look into its own folder.
    .toSorted((one, other) => one.names.length - other.names.length);
  for (const { path, names } of byDepth) {
    for (let depth = 0; depth < names.length && !rules.ignores(path); depth += 1) {
      const folder = names.slice(0, depth).join('/');
      if (known.has(folder) || known.size >= MAX_IGNORE_FILES) continue;
      known.add(folder);
      const text = await read(folder);
      if (text !== null) rules.add(folder, text);
    }
    if (rules.ignores(path)) ignored.add(path);
  }
  return ignored;
}
