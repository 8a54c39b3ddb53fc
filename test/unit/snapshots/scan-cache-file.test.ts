import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { HoldfastError } from '../../../protocol/errors.ts';
import { ScanCacheFile } from '../../../supervisor/snapshots/store/scan-cache-file.ts';
import { temporaryDirectory } from '../../fixtures/store/temporary-home.ts';

const PART = 3 * 2 ** 20;
const SESSION = 'ses-one';

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error: unknown = await promise.then(
    () => null,
    (reason: unknown) => reason,
  );
  return error instanceof HoldfastError ? error.code : String(error);
}

async function written(lineage: string, byte: number): Promise<void> {
  const file = new ScanCacheFile(lineage, SESSION);
  for (const at of [0, PART]) await file.put(at, Buffer.alloc(PART, byte));
  await file.seal(2 * PART);
  await file.close();
}

/** All of it, and what the first piece begins with. */
async function readBack(lineage: string): Promise<{ bytes: number; first: number | undefined }> {
  const file = new ScanCacheFile(lineage, SESSION);
  let bytes = 0;
  let first: number | undefined;
  for (let part = await file.read(0); part.length > 0; part = await file.read(bytes)) {
    first ??= part[0];
    expect(part.every((byte) => byte === first)).toBe(true);
    bytes += part.length;
  }
  await file.close();
  return { bytes, first };
}

test('the cache is the last sealed one; an unsealed one leaves no file', async () => {
  const lineage = temporaryDirectory();
  expect(await readBack(lineage)).toEqual({ bytes: 0, first: undefined });
  await written(lineage, 1);
  expect(await readBack(lineage)).toEqual({ bytes: 2 * PART, first: 1 });

  const cut = new ScanCacheFile(lineage, SESSION);
  await cut.put(0, Buffer.alloc(PART, 2));
  expect(await readBack(lineage)).toEqual({ bytes: 2 * PART, first: 1 });
  await cut.close();
  expect(readdirSync(join(lineage, 'scans'))).toEqual([SESSION]);

  // What a supervisor that was killed has left does not get into the next one.
  writeFileSync(join(lineage, 'scans', `${SESSION}.incoming`), Buffer.alloc(3 * PART, 9));
  await written(lineage, 3);
  expect(await readBack(lineage)).toEqual({ bytes: 2 * PART, first: 3 });
  await new ScanCacheFile(lineage, SESSION).remove();
  expect(readdirSync(join(lineage, 'scans'))).toEqual([]);
});

test('a sidecar cannot leave gaps, exceed the size limit, or seal bytes that it did not send', async () => {
  const lineage = temporaryDirectory();
  await written(lineage, 1);
  const file = new ScanCacheFile(lineage, SESSION, 2 * PART);
  expect(await codeOf(file.put(5, Buffer.alloc(1)))).toBe('invalid_params');
  expect(await codeOf(file.seal(0))).toBe('invalid_params');
  // Also one that does not wait for answers.
  const same = await Promise.allSettled([0, PART, PART].map((at) => file.put(at, Buffer.alloc(PART))));
  expect(same.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected']);
  await file.put(0, Buffer.alloc(PART));
  expect(await codeOf(file.put(PART + 1, Buffer.alloc(1)))).toBe('invalid_params');
  expect(await codeOf(file.seal(PART - 1))).toBe('invalid_params');
  await file.put(PART, Buffer.alloc(PART));
  expect(await codeOf(file.put(2 * PART, Buffer.alloc(1)))).toBe('invalid_params');
  await file.close();
  expect(await readBack(lineage)).toEqual({ bytes: 2 * PART, first: 1 });
  expect(readdirSync(join(lineage, 'scans'))).toEqual([SESSION]);
});
