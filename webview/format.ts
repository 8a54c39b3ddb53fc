/** `1,204`. */
export function formatNumber(value: number): string {
  return value.toLocaleString('en-US');
}

/** `1 file`, `2 files`. */
export function formatCount(value: number, noun: string): string {
  return `${formatNumber(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/** `820 ms`, `12 s`, `3 min 5 s`. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : String(Math.round(seconds))} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** `12 KB`. */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return formatCount(bytes, 'byte');
  if (bytes < 2 ** 20) return `${Math.round(bytes / 1024)} KB`;
  return bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(1)} MB` : `${(bytes / 2 ** 30).toFixed(1)} GB`;
}

/** The time of day, and the day where it is not today. */
export function formatTime(time: string, now = new Date()): string {
  const date = new Date(time);
  const clock = date.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit' });
  if (date.toDateString() === now.toDateString()) return clock;
  return `${date.toLocaleDateString(undefined, { month: 'short', day: 'numeric' })}, ${clock}`;
}

// Control characters but tab and line ends, and characters that reorder text or are invisible. ANSI sequences first.
// eslint-disable-next-line no-control-regex -- they are what is removed
const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
const HIDDEN = /[^\P{C}\t\n]/gu;

/** Text that an agent wrote, without what acts on a terminal, hides or reorders. */
export function plain(text: string): string {
  return text
    .replaceAll('\r\n', '\n')
    .replace(ANSI, '')
    .replace(HIDDEN, (character) => (character === '\r' ? '\n' : '\u{FFFD}'));
}
