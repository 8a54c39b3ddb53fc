import { HoldfastError } from './errors.ts';

/**
 * How the protocol encodes names and paths of a workspace.
 *
 * A name on disk is a sequence of bytes. Valid UTF-8 is encoded as itself. Bytes that are not UTF-8, and the bytes of `␛`
 * (U+241B) itself, are each escaped as `␛` and two lower-case hexadecimal digits. So every name has exactly one encoding,
 * which JSON, URIs and terminals preserve.
 */
export const ESCAPE = '\u241b';

/** The root of all paths, as the agent sees it. */
export const WORKSPACE = '/workspace';

export const PATH_LIMITS = {
  /** For the whole path on disk, including `/workspace`. */
  pathBytes: 4096,
  nameBytes: 255,
  /** An escaped byte takes three characters. */
  characters: 3 * 4096,
} as const;

const SLASH = 0x2f;
const REPLACEMENT_CHARACTER = '\ufffd';

/** Encodes a name on disk. */
export function encodeName(name: Uint8Array): string {
  const bytes = Buffer.from(name.buffer, name.byteOffset, name.byteLength);
  const text = bytes.toString('utf8');
  if (!text.includes(REPLACEMENT_CHARACTER) && !text.includes(ESCAPE)) return text;
  let encoded = '';
  for (let at = 0; at < bytes.length;) {
    const length = sequenceLength(bytes, at);
    if (length === 0) {
      encoded += escaped(bytes.subarray(at, at + 1));
      at += 1;
    } else {
      const character = bytes.toString('utf8', at, at + length);
      encoded += character === ESCAPE ? escaped(bytes.subarray(at, at + length)) : character;
      at += length;
    }
  }
  return encoded;
}

/** Decodes a name. Throws `invalid_params` for text that `encodeName` never returns. */
export function decodeName(encoded: string): Buffer {
  const name = encoded.includes(ESCAPE) ? unescaped(encoded) : Buffer.from(encoded, 'utf8');
  if (encodeName(name) !== encoded) {
    throw refused(
      encoded,
      `the name is not encoded correctly: ${ESCAPE} must be followed by a byte as two digits`,
    );
  }
  return name;
}

/**
 * Splits an absolute path below /workspace into its names on disk, without `workspace`; empty for /workspace itself.
 * A backslash has no special meaning. Throws `invalid_params` for an invalid path, `file_not_found` for one elsewhere.
 */
export function parsePath(path: string): Buffer[] {
  if (path.length > PATH_LIMITS.characters)
    throw refused(path, `it is longer than ${PATH_LIMITS.pathBytes} bytes`);
  if (!path.startsWith('/')) throw refused(path, `it does not begin with ${WORKSPACE}`);
  if (path.includes('\0')) throw refused(path, 'it contains a NUL character');
  const names = path.slice(1).split('/');
  let size = 0;
  const decoded = names.map((name) => {
    if (name === '') throw refused(path, 'it has an empty name: no // and no / at the end');
    if (name === '.' || name === '..') throw refused(path, `it contains the name ${name}`);
    const bytes = decodeName(name);
    if (bytes.includes(SLASH) || bytes.includes(0)) throw refused(path, 'a name in it contains / or NUL');
    if (bytes.length > PATH_LIMITS.nameBytes)
      throw refused(path, `a name in it is longer than ${PATH_LIMITS.nameBytes} bytes`);
    size += bytes.length + 1;
    return bytes;
  });
  if (size > PATH_LIMITS.pathBytes) throw refused(path, `it is longer than ${PATH_LIMITS.pathBytes} bytes`);
  const [top, ...below] = decoded;
  if (top?.equals(WORKSPACE_NAME) !== true) {
    throw new HoldfastError('file_not_found', `There is no ${shown(path)}`, {
      why: `only what is below ${WORKSPACE} can be reached`,
    });
  }
  return below;
}

/** The inverse of `parsePath`. */
export function formatPath(names: readonly Uint8Array[]): string {
  return [WORKSPACE, ...names.map(encodeName)].join('/');
}

/** Encodes the target of a symbolic link, which may contain slashes and need not be a path in the workspace. */
export function encodeLink(text: Uint8Array): string {
  return encodeName(text);
}

/** Decodes the target of a symbolic link. Throws `invalid_params` for an invalid encoding or target. */
export function decodeLink(encoded: string): Buffer {
  const text = decodeName(encoded);
  if (text.length === 0 || text.includes(0))
    throw refused(encoded, 'the target of a link must not be empty or contain NUL');
  if (text.length >= PATH_LIMITS.pathBytes) {
    throw refused(encoded, `the target of a link must be shorter than ${PATH_LIMITS.pathBytes} bytes`);
  }
  return text;
}

const WORKSPACE_NAME = /* @__PURE__ */ Buffer.from(/* @__PURE__ */ WORKSPACE.slice(1));

function escaped(bytes: Uint8Array): string {
  return [...bytes].map((byte) => ESCAPE + byte.toString(16).padStart(2, '0')).join('');
}

function unescaped(encoded: string): Buffer {
  const [first = '', ...rest] = encoded.split(ESCAPE);
  const parts = [Buffer.from(first, 'utf8')];
  for (const piece of rest) {
    const digits = piece.slice(0, 2);
    if (!/^[0-9a-f]{2}$/.test(digits)) {
      throw refused(encoded, `${ESCAPE} must be followed by two lower-case hexadecimal digits`);
    }
    parts.push(Buffer.from(digits, 'hex'), Buffer.from(piece.slice(2), 'utf8'));
  }
  return Buffer.concat(parts);
}

/** Length of the well-formed UTF-8 character at `at`; 0 if there is none. Table 3-7 of the Unicode Standard. */
function sequenceLength(bytes: Buffer, at: number): number {
  const lead = bytes[at] ?? 0;
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  const second = bytes[at + 1] ?? 0;
  const least = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
  const most = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
  if (second < least || second > most) return 0;
  for (let next = at + 2; next < at + length; next += 1) {
    if (((bytes[next] ?? 0) & 0xc0) !== 0x80) return 0;
  }
  return length;
}

function shown(path: string): string {
  return path.length > 200 ? `${path.slice(0, 200)}…` : path;
}

function refused(path: string, why: string): HoldfastError {
  return new HoldfastError('invalid_params', `${JSON.stringify(shown(path))} is not a path`, {
    why,
    next: `write it as ${WORKSPACE}/… with one / between names`,
  });
}

/** The name at the end of a path: what comes after its last slash. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
