import { sanitize } from '../base/sanitize.ts';
import { MARK_SUFFIX, displayPath } from './configuration-paths.ts';

/** Files that extensions of VS Code act on by their name, whatever their scheme: npm is asked about their packages. */
const ACTED_ON = /\/(?:package|bower|composer)\.json$/i;

/**
 * The path of a read-only document of a file of the workspace, for people: a name with hidden characters could read as another one. Two
 * files may have the same, so the query of the URI has the path as it is.
 */
export function documentPath(path: string): string {
  const readable = `/${displayPath(path)
    .slice(1)
    .split('/')
    .map((name) => sanitize(name))
    .join('/')}`;
  return ACTED_ON.test(readable) ? readable + MARK_SUFFIX : readable;
}
