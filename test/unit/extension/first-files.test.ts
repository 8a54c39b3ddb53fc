import { expect, test } from 'vitest';
import { ATTACHMENT_LIMITS } from '../../../protocol/attachment-names.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import type { HostConnection } from '../../../extension/connection/host-connection.ts';
import { FirstFiles } from '../../../extension/home/first-files.ts';

const SESSION = 'ses-aaaaaaaaaaaaaaaa';
const MIB = 2 ** 20;
const CHUNK = ATTACHMENT_LIMITS.chunkBytes;

/** Attaches a file as the page does. */
function attach(files: FirstFiles, upload: string, bytes: Buffer): boolean {
  let isWhole = false;
  for (let offset = 0; offset < Math.max(1, bytes.length); offset += CHUNK)
    isWhole = files.receive({
      upload,
      offset,
      total: bytes.length,
      bytes: bytes.subarray(offset, offset + CHUNK),
    });
  return isWhole;
}
const named = (upload: string, bytes = 0) => ({ upload, name: `${upload}.bin`, bytes });
function codeOf(action: () => unknown): string {
  try {
    action();
    return 'none';
  } catch (error) {
    return HoldfastError.from(error).code;
  }
}

test('files reach the session whole, in parts, and again where the prompt has to be sent again', async () => {
  const files = new FirstFiles();
  const large = Buffer.alloc(2 * MIB + 5, 'large');
  expect([attach(files, 'large', large), attach(files, 'empty', Buffer.alloc(0))]).toEqual([true, true]);
  const received = new Map<string, Buffer>();
  // A fake: what a host answers to `attachment/upload`.
  const host = {
    call: (_method: string, { upload, offset, total }: never, { bytes }: { bytes: Buffer }) => {
      const before = offset === 0 ? Buffer.alloc(0) : (received.get(upload) ?? Buffer.alloc(0));
      expect([bytes.length <= CHUNK, before.length]).toEqual([true, offset]);
      received.set(upload, Buffer.concat([before, bytes]));
      const isWhole = received.get(upload)?.length === total;
      return Promise.resolve({ content: isWhole ? { sha256: `hash of ${String(upload)}` } : null });
    },
  } as unknown as HostConnection;
  for (let again = 0; again < 2; again += 1) {
    expect(await files.uploadTo(host, SESSION, [named('large'), named('empty')])).toEqual([
      { content: 'hash of large', name: 'large.bin' },
      { content: 'hash of empty', name: 'empty.bin' },
    ]);
    expect(received.get('large')?.equals(large)).toBe(true);
  }
});

test('what the page does not know is dropped, and what is gone is said before a session is created', () => {
  const files = new FirstFiles();
  for (const upload of ['kept', 'forgotten']) attach(files, upload, Buffer.from('x'));
  files.receive({ upload: 'half', offset: 0, total: 10, bytes: Buffer.from('12345') });
  expect(files.keepOnly([named('kept'), named('half'), named('never')])).toEqual(['kept']);
  expect(codeOf(() => files.requireAll([named('kept')]))).toBe('none');
  for (const gone of ['forgotten', 'half', 'never'])
    expect(
      codeOf(() => files.requireAll([named('kept'), named(gone)])),
      gone,
    ).toBe('not_found');
});

test('a gap, another size and too many bytes are refused, and memory is bounded', () => {
  const files = new FirstFiles();
  const part =
    (upload: string, offset: number, total: number, bytes = 'abc') =>
    () =>
      files.receive({ upload, offset, total, bytes: Buffer.from(bytes) });
  part('a', 0, 6)();
  expect(codeOf(part('a', 4, 6))).toBe('invalid_params');
  expect(codeOf(part('a', 3, 6))).toBe('invalid_params');
  expect(codeOf(part('b', 0, 2))).toBe('invalid_params');
  for (const upload of ['c', 'd', 'e']) part(upload, 0, 10 * MIB)();
  expect(codeOf(part('f', 0, 3 * MIB))).toBe('file_too_large');
  files.drop('c');
  expect(codeOf(part('f', 0, 3 * MIB))).toBe('none');
});
