/** Longest prompt in a list of sessions, in UTF-16 units. */
export const PROMPT_CHARACTERS = 80;

/** Longest beginning of a prompt beside its item, in UTF-16 units. */
export const PREVIEW_CHARACTERS = 200;
/** So much of a prompt is read for its beginning. */
export const PREVIEW_BYTES = 4096;

/** One line of at most `characters` UTF-16 units. Control characters and runs of white space become one space. */
export function toSingleLine(text: string, characters: number): string {
  const line = text.replaceAll(/[\s\p{C}]+/gu, ' ').trim();
  return line.length <= characters ? line : `${line.slice(0, characters - 1)}…`;
}

/** The same of the beginning of a prompt, whose end may be half a character. */
export function firstLine(bytes: Uint8Array, characters: number): string {
  const head = bytes.subarray(0, PREVIEW_BYTES);
  return toSingleLine(new TextDecoder().decode(head, { stream: head.length < bytes.length }), characters);
}
