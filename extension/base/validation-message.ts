import type { z } from 'zod';

/** For `validateInput`: what is wrong with a text that was typed, as a sentence. `what`: "a host". */
export function validationMessage(schema: z.ZodType, text: string, what: string): string | undefined {
  if (text.trim() === '') return `Enter ${what}.`;
  const message = schema.safeParse(text).error?.issues[0]?.message;
  return message === undefined ? undefined : `${message.charAt(0).toUpperCase()}${message.slice(1)}.`;
}
