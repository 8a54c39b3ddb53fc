import { z } from 'zod';

/** A DNS-1123 label, because it becomes part of container names. */
export const ProfileNameSchema = z
  .string()
  .regex(
    /^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$/,
    'lower-case letters, digits and dashes, 1 to 40, no dash at either end',
  );
