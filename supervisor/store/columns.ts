import { z } from 'zod';
import type { SQLInputValue } from 'node:sqlite';
import { HoldfastError } from '../../protocol/errors.ts';

/** Any JSON value. */
export const JsonSchema = z.json();
export type Json = z.infer<typeof JsonSchema>;

/** Parsers of column values as SQLite returns them. Times are whole ms since 1970. */
export const flag = z.literal([0, 1]).transform((value) => value === 1);
export const time = z.int();
export const count = z.int().nonnegative();
export const blob = z
  .instanceof(Uint8Array)
  .transform((value) => Buffer.from(value.buffer, value.byteOffset, value.byteLength));

/** JSON stored as text. */
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

/** Encodes a value for a column: flags as 0 and 1, arrays and objects as JSON. */
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

/** Encodes any JSON, so that JSON `null` differs from a column without a value. */
export function toJson(value: unknown): string {
  return JSON.stringify(value);
}

/** Parses a row by its schema. Errors: `home_damaged` for a row that another program wrote. */
export function parseRow<T extends z.ZodType>(schema: T, table: string, row: unknown): z.output<T> {
  const parsed = schema.safeParse(row);
  if (parsed.success) return parsed.data;
  throw new HoldfastError('home_damaged', `A row of the table ${table} cannot be read`, {
    why: z.prettifyError(parsed.error),
    next: "stop the supervisor and restore the newest file from the home's `backups` folder",
    cause: parsed.error,
  });
}
