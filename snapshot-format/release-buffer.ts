/**
 * Gives memory back that nobody reads any more, at once: what waits for the collector makes it look through everything, again and
 * again, and the next piece is fresh memory with a page fault every 4 KiB. From now on `bytes` are empty. Those that share their
 * memory with others stay as they are.
 */
export function releaseBuffer(bytes: Buffer): void {
  const { buffer } = bytes;
  // Small ones lie in memory that Node gives out in parts.
  const isOwn = buffer instanceof ArrayBuffer && buffer.byteLength > Buffer.poolSize;
  if (isOwn) buffer.transfer(0);
}
