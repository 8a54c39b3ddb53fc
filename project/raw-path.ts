import { encodeName } from '../protocol/paths.ts';

/** A path as bytes, one character each: names need not be UTF-8. */
export type RawPath = string;

export const toBytes = (path: RawPath): Buffer => Buffer.from(path, 'latin1');
export const fromBytes = (bytes: Uint8Array): RawPath =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
export const fromText = (text: string): RawPath => Buffer.from(text, 'utf8').toString('latin1');
/** For people. */
export const readable = (path: RawPath): string => toBytes(path).toString('utf8');

/** Bytes of a path as messages and lists have it, where a byte that is not UTF-8 takes five. */
export const encodedLength = (path: RawPath): number => Buffer.byteLength(encodeName(toBytes(path)));

export function joinRaw(folder: RawPath, relative: RawPath): RawPath {
  return relative === '' && folder === '' ? '' : `${folder === '/' ? '' : folder}/${relative}`;
}
