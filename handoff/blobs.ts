import { HoldfastError } from '../protocol/errors.ts';
import { fromBytes } from '../project/raw-path.ts';
import type { Git } from './git.ts';

/** Contents that git prints at once. */
const BATCH_BYTES = 32 * 2 ** 20;
const WHAT = 'The files of the commit cannot be read';

export interface Blob {
  readonly blob: string;
  readonly size: number;
}

/** The sizes of blobs by their ids. Errors: `conflict` if the repository lacks one. */
export async function sizesOf(git: Git, blobs: readonly string[]): Promise<Map<string, number>> {
  const listing = await git.text(['cat-file', '--batch-check=%(objectname) %(objectsize)'], {
    input: Buffer.from(blobs.map((blob) => `${blob}\n`).join('')),
    what: WHAT,
  });
  const sizes = new Map<string, number>();
  for (const line of listing.split('\n')) {
    const [blob = '', size = ''] = line.split(' ');
    if (/^\d+$/.test(size)) sizes.set(blob, Number(size));
  }
  const lost = blobs.find((blob) => !sizes.has(blob));
  if (lost === undefined) return sizes;
  throw new HoldfastError('conflict', WHAT, {
    why: `the repository lacks the object ${lost}`,
    next: 'see `git fsck`',
  });
}

/** Groups that are read at once. */
export function batchesOf(blobs: readonly Blob[]): Blob[][] {
  const batches: Blob[][] = [];
  let bytes = Infinity;
  for (const blob of blobs) {
    if (bytes + blob.size > BATCH_BYTES) {
      batches.push([]);
      bytes = 0;
    }
    batches.at(-1)?.push(blob);
    bytes += blob.size;
  }
  return batches;
}

/** The contents of blobs, in their order. */
export async function contentsOf(git: Git, blobs: readonly Blob[]): Promise<Buffer[]> {
  const output = await git.bytes(['cat-file', '--batch=%(objectname)'], {
    input: Buffer.from(blobs.map(({ blob }) => `${blob}\n`).join('')),
    what: WHAT,
  });
  const parts: Buffer[] = [];
  let at = 0;
  for (const { blob, size } of blobs) {
    const begin = at + blob.length + 1;
    if (fromBytes(output.subarray(at, begin)) !== `${blob}\n`) throw unreadable(blob);
    parts.push(output.subarray(begin, begin + size));
    at = begin + size + 1;
  }
  if (at !== output.length) throw unreadable('its end');
  return parts;
}

function unreadable(what: string): HoldfastError {
  return new HoldfastError('conflict', WHAT, { why: `git printed something else for ${what}` });
}
