import type { z } from 'zod';

/**
 * For `validateInput`: what is wrong with the typed text, as a sentence; undefined if it is valid. `what`: "a host
 * name".
 */
export function validationMessage(schema: z.ZodType, text: string, what: string): string | undefined {
  if (text.trim() === '') return `Enter ${what}.`;
  const message = schema.safeParse(text).error?.issues[0]?.message;
  return message === undefined ? undefined : `${message.charAt(0).toUpperCase()}${message.slice(1)}.`;
}
