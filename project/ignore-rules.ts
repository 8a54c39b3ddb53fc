import createIgnore, { type Ignore } from 'ignore';
import { baseName } from '../protocol/paths.ts';

/** Ignore files; rules of the later one take precedence. */
export const IGNORE_FILES = ['.gitignore', '.holdfastignore'] as const;

interface Level {
  /**
   * The folder of the ignore file, relative to the project: empty for the project itself, else with a trailing slash.
   */
  readonly base: string;
  readonly rules: Ignore;
}

/**
 * `.gitignore` semantics with nested files: the deepest file with a matching rule decides, and ignored folders are
 * never entered.
 */
export class IgnoreRules {
  readonly #levels: readonly Level[];

  private constructor(levels: readonly Level[]) {
    this.#levels = levels;
  }

  static none(): IgnoreRules {
    return new IgnoreRules([]);
  }

  /** The rules inside `folder` (relative, empty for the project) whose own ignore files contain `texts`. */
  within(folder: string, texts: readonly string[]): IgnoreRules {
    if (texts.length === 0) return this;
    const rules = createIgnore({ ignorecase: false, allowRelativePaths: true });
    for (const text of texts) rules.add(text);
    return new IgnoreRules([...this.#levels, { base: folder === '' ? '' : `${folder}/`, rules }]);
  }

  /** `path` is relative to the project, and its parents are not ignored. */
  ignores(path: string, isFolder: boolean): boolean {
    if (isGitEntry(path)) return true;
    for (const { base, rules } of this.#levels.toReversed()) {
      const relative = path.slice(base.length) + (isFolder ? '/' : '');
      const { ignored, unignored } = rules.test(relative);
      if (ignored) return true;
      if (unignored) return false;
    }
    return false;
  }
}

/** Git's own folder or file, which is always ignored. */
export function isGitEntry(path: string): boolean {
  return baseName(path) === '.git';
}
