/** Longest prompt in a list of sessions, in UTF-16 units. */
export const PROMPT_CHARACTERS = 80;

/** One line of at most `characters` UTF-16 units. Control characters and runs of white space become one space. */
export function toSingleLine(text: string, characters: number): string {
  const line = text.replaceAll(/[\s\p{C}]+/gu, ' ').trim();
  return line.length <= characters ? line : `${line.slice(0, characters - 1)}…`;
}
