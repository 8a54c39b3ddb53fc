/** Bytes of a path as latin1: a character for each. */
type RawPath = string;

/** Bounds for rules that an agent may have written. */
const MAX_RULES = 500;
const MAX_RULE_LENGTH = 200;

/** `*` at the beginning or end of a name, or no star: each is compared in linear time. */
type NameRule =
  { readonly kind: 'equals' | 'starts' | 'ends'; readonly text: string } | { readonly kind: 'any' };

interface Rule {
  /** Names from the folder of the ignore file on; a rule without a slash matches any name below it. */
  readonly names: readonly NameRule[];
  readonly isAnchored: boolean;
  readonly isNegated: boolean;
}

/**
 * The plain rules of `.gitignore` files: names and paths with at most one star at either end of a name. An agent may have written the
 * rules, so nothing becomes a regular expression; other rules are left out, and their files are shown to the person instead.
 */
export class PlainIgnoreRules {
  readonly #byFolder = new Map<RawPath, readonly Rule[]>();

  /** `folder`: of the ignore file, without a slash at the end; empty for the top. */
  add(folder: RawPath, text: string): void {
    const rules: Rule[] = [];
    for (const line of text.split('\n')) {
      if (rules.length === MAX_RULES) break;
      const rule = parseRule(line.replace(/\r$/, ''));
      if (rule !== null) rules.push(rule);
    }
    this.#byFolder.set(folder, rules);
  }

  /** Whether the file, or a folder above it, is ignored. */
  ignores(path: RawPath): boolean {
    const names = path.split('/');
    for (let length = 1; length <= names.length; length += 1) {
      if (this.#decides(names.slice(0, length)) === true) return true;
    }
    return false;
  }

  /** The last matching rule of the deepest ignore file decides. */
  #decides(names: readonly string[]): boolean | null {
    for (let depth = names.length - 1; depth >= 0; depth -= 1) {
      const rules = this.#byFolder.get(names.slice(0, depth).join('/'));
      if (rules === undefined) continue;
      const below = names.slice(depth);
      const found = rules.findLast((rule) => matches(rule, below));
      if (found !== undefined) return !found.isNegated;
    }
    return null;
  }
}

function parseRule(line: string): Rule | null {
  let text = line.replace(/ +$/, '');
  if (text === '' || text.startsWith('#') || text.length > MAX_RULE_LENGTH) return null;
  const isNegated = text.startsWith('!');
  if (isNegated) text = text.slice(1);
  if (/[\\?[\]]/.test(text)) return null;
  text = text.replace(/\/+$/, '').replace(/^\*\*\//, '');
  const isAnchored = text.includes('/');
  const parts = text.replace(/^\/+/, '').split('/');
  const names: NameRule[] = [];
  for (const part of parts) {
    const stars = part.split('*').length - 1;
    if (part === '' || stars > 1 || part.includes('**')) return null;
    if (part === '*') names.push({ kind: 'any' });
    else if (stars === 0) names.push({ kind: 'equals', text: part });
    else if (part.startsWith('*')) names.push({ kind: 'ends', text: part.slice(1) });
    else if (part.endsWith('*')) names.push({ kind: 'starts', text: part.slice(0, -1) });
    else return null;
  }
  return { names, isAnchored, isNegated };
}

function matches({ names, isAnchored }: Rule, path: readonly string[]): boolean {
  if (!isAnchored) return matchesName(names[0], path.at(-1));
  return names.length === path.length && names.every((rule, at) => matchesName(rule, path[at]));
}

function matchesName(rule: NameRule | undefined, name: string | undefined): boolean {
  if (rule === undefined || name === undefined) return false;
  switch (rule.kind) {
    case 'any':
      return true;
    case 'equals':
      return name === rule.text;
    case 'starts':
      return name.startsWith(rule.text);
    case 'ends':
      return name.endsWith(rule.text);
  }
}
