/**
 * Frees a buffer's memory at once and leaves `bytes` empty. Waiting for the garbage collector would cost full
 * collections, and fresh memory has a page fault every 4 KiB. Buffers that share their memory are left as they are.
 */
export function releaseBuffer(bytes: Buffer): void {
  const { buffer } = bytes;
  // Small buffers share Node's pool.
  const isOwn = buffer instanceof ArrayBuffer && buffer.byteLength > Buffer.poolSize;
  if (isOwn) buffer.transfer(0);
}
