/** The byte that belongs at an offset of the output that the crash tests write: any prefix of it can be checked. */
export function outputByte(offset: number): number {
  return (Math.imul(offset + 1, 2654435761) >>> 13) & 0xff;
}
