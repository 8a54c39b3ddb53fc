import { Readable } from 'node:stream';
import { createDeflate } from 'node:zlib';
import { base85Lines, LINE_BYTES } from './base85.ts';

/** A compromise: a patch is written once and read once, so time matters as much as size. */
const LEVEL = 3;

/**
 * One `literal` of a `GIT binary patch`: the whole content, deflated, in lines. Memory use does not depend on the size.
 */
export async function* literalHunk(size: number, content: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  yield Buffer.from(`literal ${size}\n`);
  const deflate = createDeflate({ level: LEVEL });
  const source = Readable.from(content);
  source.on('error', (error) => deflate.destroy(error));
  try {
    let rest: Buffer = Buffer.alloc(0);
    for await (const chunk of source.pipe(deflate) as AsyncIterable<Buffer>) {
      const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
      const whole = bytes.length - (bytes.length % LINE_BYTES);
      rest = bytes.subarray(whole);
      if (whole > 0) yield base85Lines(bytes.subarray(0, whole));
    }
    yield base85Lines(rest);
    yield Buffer.from('\n');
  } finally {
    source.destroy();
    deflate.destroy();
  }
}
