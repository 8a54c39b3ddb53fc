import { isUtf8 } from 'node:buffer';
import { HoldfastError } from '../errors.ts';
import { FRAME_LIMITS } from './limits.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** `[` and `{` differ from `]` and `}` by two; bit 0x20 tells brackets from braces. */
const OPEN = 0x5b;
const CLOSE = 0x5d;

/** Whether a JSON text nests deeper than `limit`. Scans bytes, so that a hostile text costs one pass and no stack. */
export function nestsDeeperThan(text: Uint8Array, limit: number): boolean {
  if (text.length <= limit) return false;
  let depth = 0;
  let quoted = false;
  for (let at = 0; at < text.length; at++) {
    const byte = text[at];
    if (quoted) {
      if (byte === BACKSLASH) at++;
      else if (byte === QUOTE) quoted = false;
    } else if (byte === QUOTE) {
      quoted = true;
    } else if (byte !== undefined && byte >= OPEN) {
      const kind = byte & ~0x20;
      if (kind === OPEN) {
        if (++depth > limit) return true;
      } else if (kind === CLOSE) depth--;
    }
  }
  return false;
}

/**
 * Finds a key that could pollute a prototype when the value is merged: `__proto__`, or `constructor` that contains
 * `prototype`. JSON.parse itself creates plain own properties for both.
 */
export function findForbiddenKey(value: unknown): string | undefined {
  const open: unknown[] = [value];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (typeof next !== 'object' || next === null) continue;
    if (Object.hasOwn(next, '__proto__')) return '__proto__';
    for (const [key, inner] of Object.entries(next as JsonObject)) {
      if (typeof inner !== 'object' || inner === null) continue;
      if (key === 'constructor' && Object.hasOwn(inner, 'prototype')) return 'constructor.prototype';
      open.push(inner);
    }
  }
  return undefined;
}

/** Only a text that matches can contain a forbidden key. Escaped letters are rare enough to check these texts in full. */
const SUSPICIOUS = /__proto__|prototype|\\u00/;

export function forbiddenKeyIn(text: string, parsed: unknown): string | undefined {
  return SUSPICIOUS.test(text) ? findForbiddenKey(parsed) : undefined;
}

function refuse(reason: string, why: string, cause?: unknown): HoldfastError {
  return new HoldfastError('protocol_error', 'A message cannot be read', { why, details: { reason }, cause });
}

/** Parses one untrusted line. Throws `protocol_error` with `details.reason`. */
export function parseUntrustedLine(line: Buffer): JsonObject {
  if (!isUtf8(line)) throw refuse('not_utf8', 'it is not UTF-8');
  if (nestsDeeperThan(line, FRAME_LIMITS.depth)) {
    throw refuse('too_deep', `it nests deeper than ${FRAME_LIMITS.depth}`);
  }
  const text = line.toString('utf8');
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (cause) {
    throw refuse('not_json', 'it is not JSON', cause);
  }
  if (!isJsonObject(parsed)) throw refuse('not_an_object', 'it is not a JSON object');
  const key = forbiddenKeyIn(text, parsed);
  if (key !== undefined) throw refuse('forbidden_key', `it has the key ${key}`);
  return parsed;
}

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
