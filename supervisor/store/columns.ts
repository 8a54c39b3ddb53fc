import { z } from 'zod';
import type { SQLInputValue } from 'node:sqlite';
import { HoldfastError } from '../../protocol/errors.ts';

/** Any JSON value. */
export const JsonSchema = z.json();
export type Json = z.infer<typeof JsonSchema>;

/** What columns of each kind hold, as they come out of SQLite. Times are whole ms since 1970. */
export const flag = z.literal([0, 1]).transform((value) => value === 1);
export const time = z.int();
export const count = z.int().nonnegative();
export const blob = z
  .instanceof(Uint8Array)
  .transform((value) => Buffer.from(value.buffer, value.byteOffset, value.byteLength));

/** JSON kept as text. */
export function json<T extends z.ZodType>(schema: T) {
  return z
    .string()
    .transform((text, context): unknown => {
      try {
        return JSON.parse(text);
      } catch (error) {
        context.addIssue({ code: 'custom', message: `not JSON: ${String(error)}` });
        return z.NEVER;
      }
    })
    .pipe(schema);
}

/** What goes into a column: flags as 0 and 1, arrays and objects as JSON. */
export function toColumn(value: unknown): SQLInputValue {
  if (value === null || value === undefined) return null;
  switch (typeof value) {
    case 'string':
    case 'number':
    case 'bigint':
      return value;
    case 'boolean':
      return value ? 1 : 0;
    default:
      return value instanceof Uint8Array ? value : JSON.stringify(value);
  }
}

/** JSON that may itself be `null` needs to be told from a column without a value. */
export function toJson(value: unknown): string {
  return JSON.stringify(value);
}

/** A row as its schema has it. Errors: `home_damaged`, as somebody else wrote it. */
export function parseRow<T extends z.ZodType>(schema: T, table: string, row: unknown): z.output<T> {
  const parsed = schema.safeParse(row);
  if (parsed.success) return parsed.data;
  throw new HoldfastError('home_damaged', `A row of the table ${table} cannot be understood`, {
    why: z.prettifyError(parsed.error),
    next: "stop the supervisor and put back the newest file of the home's `backups` folder",
    cause: parsed.error,
  });
}
