import { expect, test } from 'vitest';
import { releaseBuffer } from '../../../snapshot-format/release-buffer.ts';

test('a buffer with its own memory is released and reads as empty', () => {
  const bytes = Buffer.alloc(100_000, 'x');
  const view = bytes.subarray(10, 20);
  releaseBuffer(bytes);
  expect(bytes).toHaveLength(0);
  expect(view).toHaveLength(0);
});

test('a buffer in shared memory is left as it is', () => {
  const small = Buffer.from('one of many in a piece of memory');
  const neighbour = Buffer.from('another one');
  releaseBuffer(small);
  const shared = Buffer.from(new SharedArrayBuffer(100_000));
  releaseBuffer(shared);
  expect(small.toString()).toBe('one of many in a piece of memory');
  expect(neighbour.toString()).toBe('another one');
  expect(shared).toHaveLength(100_000);
});
