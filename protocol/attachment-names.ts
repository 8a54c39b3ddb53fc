/** What a prompt brings along beside its text. */
export const ATTACHMENT_LIMITS = {
  /** Of one prompt. */
  count: 20,
  /** Of one file, and of all files of one prompt. */
  bytes: 10 * 2 ** 20,
  promptBytes: 32 * 2 ** 20,
  /** Of one message of an upload. */
  chunkBytes: 2 ** 20,
  /** Bytes of a name. */
  nameBytes: 200,
} as const;

const NOT_IN_NAMES = /[\p{C}\p{Zl}\p{Zp}/\\]/u;

/**
 * The name under which an attachment is shown and handed to an agent: the last part of `given`, without characters that end a line,
 * hide or turn around what is shown.
 */
export function attachmentName(given: string): string {
  const last = given.split(/[/\\]/).findLast((part) => part.trim() !== '') ?? '';
  const characters = Array.from(last.toWellFormed(), (one) => (NOT_IN_NAMES.test(one) ? '_' : one));
  let name = '';
  for (const one of characters.join('').trim()) {
    if (new TextEncoder().encode(name + one).length > ATTACHMENT_LIMITS.nameBytes) break;
    name += one;
  }
  name = name.trim();
  return name === '' || name === '.' || name === '..' ? 'attachment' : name;
}
