import { HoldfastError } from '../protocol/errors.ts';
import { parsePath, WORKSPACE } from '../protocol/paths.ts';

/**
 * Converts a path that the user typed to a path of the protocol. Relative paths start at /workspace, the working
 * directory of commands in the sandbox. `.`, double slashes and a slash at the end are ignored. `..` is refused,
 * because its meaning depends on links.
 */
export function parseWorkspacePath(typed: string): string {
  const absolute = typed.startsWith('/') ? typed : `${WORKSPACE}/${typed}`;
  const names = absolute.split('/').filter((name) => name !== '' && name !== '.');
  if (names.includes('..')) {
    throw new HoldfastError('invalid_params', `${JSON.stringify(typed)} is not allowed`, {
      why: 'the path contains ..',
      next: `write the path relative to ${WORKSPACE}`,
    });
  }
  const path = `/${names.join('/')}`;
  if (names[0] !== WORKSPACE.slice(1)) {
    throw new HoldfastError('file_not_found', `${JSON.stringify(typed)} is not in the workspace`, {
      why: `this command can only access ${WORKSPACE}`,
      next: `use a path below ${WORKSPACE} or a relative path; \`holdfast exec\` can access the whole sandbox`,
    });
  }
  parsePath(path);
  return path;
}
