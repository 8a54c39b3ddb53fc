const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** The distance from `now` (ms since 1970) to `time` (ISO 8601): `5 min ago`, `in 2 h`. */
export function formatRelativeTime(time: string, now: number): string {
  const distance = now - Date.parse(time);
  if (Number.isNaN(distance)) return time;
  const away = Math.abs(distance);
  const say = (amount: string) => (distance >= 0 ? `${amount} ago` : `in ${amount}`);
  if (away < 5 * SECOND) return 'just now';
  if (away < MINUTE) return say(`${Math.floor(away / SECOND)} s`);
  if (away < HOUR) return say(`${Math.floor(away / MINUTE)} min`);
  if (away < DAY) return say(`${Math.floor(away / HOUR)} h`);
  if (away < 30 * DAY) return say(`${Math.floor(away / DAY)} d`);
  return new Date(time).toISOString().slice(0, 10);
}

/** Milliseconds as `380 ms`, `2.4 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`. */
export function formatDuration(milliseconds: number): string {
  if (milliseconds < SECOND) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 9.95 * SECOND) return `${(milliseconds / SECOND).toFixed(1)} s`;
  if (milliseconds < MINUTE - SECOND / 2) return `${Math.round(milliseconds / SECOND)} s`;
  const pair = (big: number, bigName: string, small: number, smallName: string) => {
    const whole = Math.floor(milliseconds / big);
    const rest = Math.floor((milliseconds - whole * big) / small);
    return rest === 0 ? `${whole} ${bigName}` : `${whole} ${bigName} ${rest} ${smallName}`;
  };
  if (milliseconds < HOUR) return pair(MINUTE, 'min', SECOND, 's');
  if (milliseconds < DAY) return pair(HOUR, 'h', MINUTE, 'min');
  return pair(DAY, 'd', HOUR, 'h');
}

/** Bytes as `0 B`, `512 B`, `1.5 KiB`, `20 MiB`, `3.1 GiB`. */
export function formatSize(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  let amount = bytes;
  let unit = 'B';
  for (const next of ['KiB', 'MiB', 'GiB', 'TiB', 'PiB']) {
    if (amount < 1023.5) break;
    amount /= 1024;
    unit = next;
  }
  return `${amount < 9.95 ? amount.toFixed(1) : Math.round(amount)} ${unit}`;
}

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: SECOND, m: MINUTE, h: HOUR, d: DAY };

/** `90`, `2.5`, `30s`, `5m`, `2h` → milliseconds; a bare number is seconds. Undefined when it is none of these. */
export function parseDuration(text: string): number | undefined {
  const match = /^(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)?$/.exec(text);
  if (match?.[1] === undefined) return undefined;
  return Math.round(Number(match[1]) * (UNITS[match[2] ?? 's'] ?? SECOND));
}
