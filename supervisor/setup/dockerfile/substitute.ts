import { dockerfileError } from './lines.ts';

const VARIABLE = /\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?::([-+])([^${}]*))?\})/g;

/** Puts in the values of `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+value}`. Errors: `profile_invalid` for any other form. */
export function substitute(text: string, values: ReadonlyMap<string, string>, line: number): string {
  if (text.replace(VARIABLE, '').includes('$') || text.includes('\\'))
    throw dockerfileError(line, 'it has a variable in a form that is not supported here', 'write `${NAME}`');
  return text.replace(
    VARIABLE,
    (_all, plain: string | undefined, braced: string | undefined, how: string | undefined, word = '') => {
      const value = values.get(plain ?? braced ?? '') ?? '';
      if (how === '-') return value === '' ? String(word) : value;
      if (how === '+') return value === '' ? '' : String(word);
      return value;
    },
  );
}
