import { HoldfastError } from '../../../protocol/errors.ts';

/** Why the history of a project cannot be part of a deploy. */
export function gitHistoryError(why: string, next: string, cause?: unknown): HoldfastError {
  return new HoldfastError('profile_invalid', 'The git history of the project cannot be deployed', {
    why,
    next: `${next}, or remove \`git: true\` from \`workspace.seed\``,
    details: { field: 'workspace.seed' },
    cause,
  });
}
