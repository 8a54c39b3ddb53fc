/** `ms` since 1970. */
export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}
