import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { SourceFile } from '../../../protocol/deploy.ts';
import { readSourceRecord, writeSourceRecord } from '../../../supervisor/profiles/source-record.ts';

const ORIGIN = { root: '/work', prefix: 'app/', head: 'a'.repeat(40), branch: 'main', remote: null };

let folder: string;
let path: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-source-'));
  path = join(folder, '1.source.jsonl');
});
afterEach(() => {
  rmSync(folder, { recursive: true });
});

function filesOf(count: number): SourceFile[] {
  return Array.from({ length: count }, (_, at) => ({
    path: `folder/${String(at).padStart(6, '0')} é\n`,
    blob: at.toString(16).padStart(40, '0'),
    head: at % 2 === 0 ? 'b'.repeat(40) : null,
  }));
}

describe('the record of where a version comes from', () => {
  test('is read page by page, without loss or repetition', async () => {
    const files = filesOf(12_000);
    await writeSourceRecord(path, ORIGIN, files);
    const read: SourceFile[] = [];
    let cursor: string | undefined;
    for (let pages = 0; ; pages += 1) {
      const page = await readSourceRecord(path, { cursor, limit: 5000 });
      expect(page.origin).toEqual(ORIGIN);
      read.push(...page.files);
      if (page.nextCursor === null) break;
      cursor = page.nextCursor;
      expect(pages).toBeLessThan(20);
    }
    expect(read).toEqual(files);
  });

  test('is replaced by a later one, and leaves no other file', async () => {
    await writeSourceRecord(path, null, filesOf(3));
    await writeSourceRecord(path, ORIGIN, filesOf(1));
    expect(await readSourceRecord(path)).toEqual({ origin: ORIGIN, files: filesOf(1), nextCursor: null });
    expect(readdirSync(folder)).toEqual(['1.source.jsonl']);
  });

  test('is empty for a version without one', async () => {
    expect(await readSourceRecord(path)).toEqual({ origin: null, files: [], nextCursor: null });
  });

  test.each(['x', '-1', '40', '9999999999999999'])('refuses the cursor %s', async (cursor) => {
    await writeSourceRecord(path, null, filesOf(3));
    await expect(readSourceRecord(path, { cursor })).rejects.toMatchObject({ code: 'invalid_params' });
  });
});
