import createIgnore, { type Ignore } from 'ignore';

/** Files that say what does not belong to the code, the later one wins. */
export const IGNORE_FILES = ['.gitignore', '.holdfastignore'] as const;

interface Level {
  /** Folder the rules stand in, relative to the project, '' for the project itself, else with a slash at the end. */
  readonly base: string;
  readonly rules: Ignore;
}

/**
 * `.gitignore` semantics with nested files: the deepest file that has something to say decides, and what is inside an
 * ignored folder is never looked at.
 */
export class IgnoreRules {
  readonly #levels: readonly Level[];

  private constructor(levels: readonly Level[]) {
    this.#levels = levels;
  }

  static none(): IgnoreRules {
    return new IgnoreRules([]);
  }

  /** The rules that hold inside `folder` (relative, '' for the project) when its own ignore files say `texts`. */
  within(folder: string, texts: readonly string[]): IgnoreRules {
    if (texts.length === 0) return this;
    const rules = createIgnore({ ignorecase: false, allowRelativePaths: true });
    for (const text of texts) rules.add(text);
    return new IgnoreRules([...this.#levels, { base: folder === '' ? '' : `${folder}/`, rules }]);
  }

  /** `path` relative to the project, its parents known not to be ignored. */
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

/** Git's own folder or file, which is left out whatever ignore files say. */
export function isGitEntry(path: string): boolean {
  return lastPart(path) === '.git';
}

function lastPart(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
