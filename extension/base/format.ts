const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** `12 bytes`, `4 KB`, `3.3 MB`, `4.7 GB`. */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} bytes`;
  if (bytes < 2 ** 20) return `${Math.round(bytes / 1024)} KB`;
  return bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(1)} MB` : `${(bytes / 2 ** 30).toFixed(1)} GB`;
}

/** How long ago an ISO time was, short enough for a list: `now`, `42 min`, `5 h`, `3 d`, then the date. */
export function formatAge(time: string, now: number): string {
  const age = Math.max(0, now - Date.parse(time));
  if (age < MINUTE) return 'now';
  if (age < HOUR) return `${Math.floor(age / MINUTE)} min`;
  if (age < DAY) return `${Math.floor(age / HOUR)} h`;
  if (age < 30 * DAY) return `${Math.floor(age / DAY)} d`;
  return time.slice(0, 10);
}

/** `820 ms`, `1.2 s`. */
export function formatDuration(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

/** `1 file`, `1,200 files`. */
export function formatCount(number: number, noun: string): string {
  return `${number.toLocaleString('en-US')} ${noun}${number === 1 ? '' : 's'}`;
}

/** `1,200 of 5,000`, or the number alone where the total is unknown. */
export function formatProgress(done: number, total: number | null): string {
  const count = done.toLocaleString('en-US');
  return total === null ? count : `${count} of ${total.toLocaleString('en-US')}`;
}
