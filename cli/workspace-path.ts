import { HoldfastError } from '../protocol/errors.ts';
import { parsePath, WORKSPACE } from '../protocol/paths.ts';

/**
 * A path as people type it → as the protocol has it: relative ones are below /workspace, where commands in the sandbox start too,
 * and `.`, doubled slashes and one at the end mean nothing. `..` is refused: what it means depends on links.
 */
export function parseWorkspacePath(typed: string): string {
  const absolute = typed.startsWith('/') ? typed : `${WORKSPACE}/${typed}`;
  const names = absolute.split('/').filter((name) => name !== '' && name !== '.');
  if (names.includes('..')) {
    throw new HoldfastError('invalid_params', `${JSON.stringify(typed)} is not used`, {
      why: 'it contains ..',
      next: `write the path from ${WORKSPACE} on`,
    });
  }
  const path = `/${names.join('/')}`;
  if (names[0] !== WORKSPACE.slice(1)) {
    throw new HoldfastError('file_not_found', `${JSON.stringify(typed)} is not in the workspace`, {
      why: `these commands see the files of the workspace only, and the agent has it at ${WORKSPACE}`,
      next: `write ${WORKSPACE}, or a path without a slash at the beginning; \`holdfast exec\` sees the rest of the sandbox`,
    });
  }
  parsePath(path);
  return path;
}
