import { open, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import {
  type ProjectOrigin,
  ProjectOriginSchema,
  type SourceFile,
  SourceFileSchema,
} from '../../protocol/deploy.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import { hasErrorCode } from '../store/storage-error.ts';
import { syncDirectory } from '../store/home.ts';

/** Bytes that one page reads; longer than any line. */
const PAGE_BYTES = 512 * 1024;
const NEWLINE = 0x0a;
const WRITE_LINES = 2000;

export interface SourcePage {
  readonly origin: ProjectOrigin | null;
  readonly files: SourceFile[];
  /** Null at the end. */
  readonly nextCursor: string | null;
}

/**
 * Records where a deployed version comes from, in a file beside its code: JSON lines, first the origin, then the files by path. A later
 * record of the same version replaces it.
 */
export async function writeSourceRecord(
  path: string,
  origin: ProjectOrigin | null,
  files: readonly SourceFile[],
): Promise<void> {
  const temporary = `${path}.part`;
  const file = await open(temporary, 'w', 0o600);
  try {
    await file.writeFile(`${JSON.stringify(origin)}\n`);
    for (let at = 0; at < files.length; at += WRITE_LINES) {
      const lines = files.slice(at, at + WRITE_LINES).map((one) => `${JSON.stringify(one)}\n`);
      await file.writeFile(lines.join(''));
    }
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, path);
  syncDirectory(dirname(path));
}

/** One page of the record; empty for a version of an earlier Holdfast, which wrote none. Errors: `invalid_params` (cursor). */
export async function readSourceRecord(
  path: string,
  {
    cursor = '0',
    limit = 1000,
  }: { readonly cursor?: string | undefined; readonly limit?: number | undefined } = {},
): Promise<SourcePage> {
  if (!/^\d{1,15}$/.test(cursor)) throw badCursor();
  const file = await open(path, 'r').catch((error: unknown) => {
    if (hasErrorCode(error, 'ENOENT')) return null;
    throw error;
  });
  if (file === null) return { origin: null, files: [], nextCursor: null };
  try {
    const buffer = Buffer.alloc(PAGE_BYTES);
    const first = await file.read(buffer, 0, PAGE_BYTES, 0);
    const head = buffer.subarray(0, first.bytesRead).indexOf(NEWLINE);
    const origin = ProjectOriginSchema.nullable().parse(JSON.parse(buffer.toString('utf8', 0, head)));
    const start = Math.max(Number(cursor), head + 1);
    const { bytesRead } = await file.read(buffer, 0, PAGE_BYTES, start);
    const files: SourceFile[] = [];
    let at = 0;
    while (files.length < limit) {
      const end = buffer.subarray(0, bytesRead).indexOf(NEWLINE, at);
      if (end === -1) break;
      const parsed = SourceFileSchema.safeParse(parseJson(buffer.toString('utf8', at, end)));
      if (!parsed.success) throw badCursor();
      files.push(parsed.data);
      at = end + 1;
    }
    const { size } = await file.stat();
    return { origin, files, nextCursor: start + at < size && files.length > 0 ? String(start + at) : null };
  } finally {
    await file.close();
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // a cursor in the middle of a line
  }
}

function badCursor(): HoldfastError {
  return new HoldfastError('invalid_params', 'The cursor is not from a list of source files', {
    next: 'omit it to start from the beginning',
  });
}
