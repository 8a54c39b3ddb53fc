import { expect, test } from 'vitest';
import { SessionFiles } from '../../../extension/files/session-files.ts';
import type { SessionConnection } from '../../../extension/files/session-files.ts';
import { HoldfastError } from '../../../protocol/errors.ts';
import { FILE_CHUNK_BYTES } from '../../../protocol/files.ts';

/** A fake supervisor with one file, which notes how many reads it has to answer at once. */
class FakeFile {
  readonly content: Buffer;
  atOnce = 0;
  mostAtOnce = 0;
  reads = 0;
  /** The read, counted from 1, at which the file has changed meanwhile. */
  changesAt = 0;

  constructor(bytes: number) {
    this.content = Buffer.alloc(bytes);
    for (let at = 0; at < bytes; at += 1009) this.content.writeUInt8(at % 251, at);
  }

  get connection(): SessionConnection {
    const callWithBytes = async (_method: string, params: { offset?: number; length?: number }) => {
      this.reads += 1;
      const isChanged = this.reads === this.changesAt;
      this.atOnce += 1;
      this.mostAtOnce = Math.max(this.mostAtOnce, this.atOnce);
      await new Promise((resolve) => setTimeout(resolve, 5));
      this.atOnce -= 1;
      if (isChanged)
        throw new HoldfastError('conflict', 'The file has changed', { details: { version: 'v2' } });
      const offset = params.offset ?? 0;
      const bytes = this.content.subarray(offset, offset + (params.length ?? FILE_CHUNK_BYTES));
      return { result: { offset, size: this.content.length, version: 'v1', mtimeMs: 1, mode: 0o644 }, bytes };
    };
    return { callWithBytes } as unknown as SessionConnection;
  }
}

const read = (file: FakeFile) => new SessionFiles(file.connection).read({ session: 'ses-a' }, '/workspace/a');

test.for([0, 1, FILE_CHUNK_BYTES, FILE_CHUNK_BYTES + 1, 3 * FILE_CHUNK_BYTES + 5])(
  'a file of %d bytes is read whole, three parts at a time at most, each of 1 MiB after the first',
  async (bytes) => {
    const file = new FakeFile(bytes);
    expect((await read(file)).bytes.equals(file.content)).toBe(true);
    const parts = Math.ceil(Math.max(0, bytes - FILE_CHUNK_BYTES) / 2 ** 20);
    expect(file.reads).toBe(1 + parts);
    expect(file.mostAtOnce).toBe(Math.min(3, Math.max(1, parts)));
  },
);

test.for([2, 3, 4])('a file that changes at part %d is read again from the beginning', async (part) => {
  const file = new FakeFile(3 * FILE_CHUNK_BYTES + 5);
  file.changesAt = part;
  expect((await read(file)).bytes.equals(file.content)).toBe(true);
  expect(file.reads).toBeGreaterThan(4);
});
