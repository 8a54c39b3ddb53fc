import { z } from 'zod';

const SECOND = 1000;
const UNITS: Record<string, number> = {
  ms: 1,
  s: SECOND,
  m: 60 * SECOND,
  h: 3600 * SECOND,
  d: 86_400 * SECOND,
};

/** `250ms`, `30s`, `5m`, `1h`, `30d` → milliseconds. */
export const DurationSchema = z
  .string()
  .regex(/^\d{1,6}(ms|s|m|h|d)$/, 'a duration such as 30s, 5m, 1h or 30d')
  .transform((text) => {
    const match = /^(\d+)(ms|s|m|h|d)$/.exec(text);
    return Number(match?.[1]) * (UNITS[match?.[2] ?? ''] ?? Number.NaN);
  });

const SIZE_UNITS: Record<string, number> = {
  B: 1,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
  TB: 1e12,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  TiB: 2 ** 40,
};

/** `512MiB`, `5GiB`, `1GB` → bytes. */
export const SizeSchema = z
  .string()
  .regex(/^\d{1,9}(\.\d{1,3})?(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$/, 'a size such as 512MiB or 5GiB')
  .transform((text) => {
    const match = /^([\d.]+)([A-Za-z]+)$/.exec(text);
    return Math.round(Number(match?.[1]) * (SIZE_UNITS[match?.[2] ?? ''] ?? Number.NaN));
  });
