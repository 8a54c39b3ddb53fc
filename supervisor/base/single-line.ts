/** Characters (UTF-16 units) of a prompt in lists: what a session is about, and what it was asked last. */
export const PROMPT_CHARACTERS = 80;

/** One line of at most so many UTF-16 units; control characters and runs of white space become one space. */
export function toSingleLine(text: string, characters: number): string {
  const line = text.replaceAll(/[\s\p{C}]+/gu, ' ').trim();
  return line.length <= characters ? line : `${line.slice(0, characters - 1)}…`;
}
