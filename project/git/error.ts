import { HoldfastError } from '../../protocol/errors.ts';

/** The error of a project whose git history cannot be deployed. */
export function gitHistoryError(why: string, next: string, cause?: unknown): HoldfastError {
  return new HoldfastError('profile_invalid', 'The git history of the project cannot be deployed', {
    why,
    next: `${next}, or remove \`git: true\` from \`workspace.seed\``,
    details: { field: 'workspace.seed' },
    cause,
  });
}
