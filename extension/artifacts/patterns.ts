import { HoldfastError } from '../../protocol/errors.ts';
import { literalPattern } from '../../protocol/path-patterns.ts';
import { ESCAPE, WORKSPACE } from '../../protocol/paths.ts';
import { sanitize } from '../base/sanitize.ts';

/**
 * A path of the workspace as the pattern that chooses it and what is below it, and nothing else. Errors: `not_supported` for a name that
 * no pattern can name.
 */
export function patternOf(path: string): string {
  if (path === WORKSPACE) return '**';
  const relative = path.slice(WORKSPACE.length + 1);
  if (!relative.includes(ESCAPE) && relative.trim() === relative) return literalPattern(relative);
  throw new HoldfastError('not_supported', `${sanitize(path)} cannot be kept by its name`, {
    why: 'its name begins or ends with a space, or is not UTF-8',
    next: 'keep the folder that has it, or rename it',
  });
}

/** The patterns that a person typed, with commas between them. */
export function patternsIn(text: string): string[] {
  return text
    .split(',')
    .map((one) => one.trim())
    .filter((one) => one !== '');
}
