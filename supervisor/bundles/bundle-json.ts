import type { z } from 'zod';
import { FRAME_LIMITS } from '../../protocol/wire/limits.ts';
import { nestsDeeperThan } from '../../protocol/wire/untrusted-json.ts';
import { refusedBundle } from './bundle-format.ts';

const QUOTE = 0x22;
const COMMA = 0x2c;
const BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const BRACE = 0x7b;

/**
 * Why a JSON text is not one of a bundle, or null: it nests too deep, or has more than `values` values. Looks at bytes only: a parser
 * makes objects of a hostile text, and a schema keeps a complaint about each of them, which is a hundred times its size.
 */
export function jsonFault(text: Uint8Array, values: number): string | null {
  if (nestsDeeperThan(text, FRAME_LIMITS.depth)) return 'a part of it nests too deep';
  return mostValues(text) > values ? 'a part of it has too many values' : null;
}

/** How many values a JSON text has at most. */
function mostValues(text: Uint8Array): number {
  let values = 1;
  let isQuoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const byte = text[at];
    if (isQuoted) {
      if (byte === BACKSLASH) at += 1;
      else if (byte === QUOTE) isQuoted = false;
    } else if (byte === QUOTE) isQuoted = true;
    else if (byte === COMMA || byte === BRACKET || byte === BRACE) values += 1;
  }
  return values;
}

/** Errors: `snapshot_damaged`. */
export function parseBundleJson<T extends z.ZodType>(bytes: Buffer, schema: T, values: number): z.output<T> {
  const fault = jsonFault(bytes, values);
  if (fault !== null) throw refusedBundle(fault);
  try {
    return schema.parse(JSON.parse(bytes.toString('utf8')));
  } catch (cause) {
    throw refusedBundle('a part of it is not what it should be', cause);
  }
}
