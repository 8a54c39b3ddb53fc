import { z } from 'zod';

/** The name of a secret, as an environment variable has it. */
export const SecretNameSchema = z
  .string()
  .regex(
    /^[A-Za-z_][A-Za-z0-9_]{0,63}$/,
    'letters, digits and underscores, 1 to 64, no digit at the beginning',
  );
