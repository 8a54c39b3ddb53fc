import { dockerfileError } from './lines.ts';

const VARIABLE = /\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?::([-+])([^${}]*))?\})/g;
/** Characters of a value, before and after its variables are filled in: values that name each other would double without end. */
const LONGEST = 4096;

/** Errors: `profile_invalid` for a value of more than 4,096 characters. */
export function requireShort(text: string, line: number): string {
  if (text.length <= LONGEST) return text;
  throw dockerfileError(line, `a value has more than ${LONGEST} characters`);
}

/**
 * Puts in the values of `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+value}`. Errors: `profile_invalid` for any other form, and
 * if the text has more than 4,096 characters, before or after.
 */
export function substitute(text: string, values: ReadonlyMap<string, string>, line: number): string {
  requireShort(text, line);
  if (text.replace(VARIABLE, '').includes('$') || text.includes('\\'))
    throw dockerfileError(line, 'it has a variable in a form that is not supported here', 'write `${NAME}`');
  let filled = 0;
  const replaced = text.replace(
    VARIABLE,
    (_all, plain: string | undefined, braced: string | undefined, how: string | undefined, word = '') => {
      const value = values.get(plain ?? braced ?? '') ?? '';
      const result =
        how === '-' && value === '' ? String(word) : how === '+' && value !== '' ? String(word) : value;
      filled += result.length;
      // Not only at the end: what is put together meanwhile is bounded too.
      if (filled > LONGEST) throw dockerfileError(line, `a value has more than ${LONGEST} characters`);
      return result;
    },
  );
  return requireShort(replaced, line);
}
