import { z } from 'zod';
import { TimeSchema } from './entities.ts';
import { ProfileNameSchema } from './profile.ts';
import { SecretNameSchema } from './secret-name.ts';

/** Bounds of a secret. One that is shorter than `minBytes` could not be told from other words in an answer. */
export const SECRET_LIMITS = { minBytes: 8, maxBytes: 64 * 1024, count: 1000 } as const;

/** What may be known of a secret: never its value. */
export const SecretSchema = z.object({
  name: SecretNameSchema,
  /** The profile that it is for; null: for all. A profile's own precedes one for all of the same name. */
  profile: ProfileNameSchema.nullable(),
  /** Rises with each new value, also of a name that was removed in between. */
  version: z.number().int().positive(),
  setAt: TimeSchema,
  /** When its value is deleted; null: never. */
  expiresAt: TimeSchema.nullable(),
  lastUsedAt: TimeSchema.nullable(),
  /** `expired`: its value is gone. `unreadable`: its file or the key is missing or damaged. */
  state: z.enum(['usable', 'expired', 'unreadable']),
});
export type Secret = z.infer<typeof SecretSchema>;

const named = z.object({
  name: SecretNameSchema,
  /** Default: for all profiles. */
  profile: ProfileNameSchema.optional(),
});

export const SECRET_METHODS = {
  /**
   * Keeps the payload as the value of a secret, in place of its earlier value. The same value with the same `expiresAt`
   * keeps its version. Errors: `invalid_params` for a value out of `SECRET_LIMITS` or a time that is over, `overloaded`
   * for too many secrets.
   */
  'secret/set': {
    params: named.extend({ expiresAt: TimeSchema.optional() }),
    result: z.object({ secret: SecretSchema }),
    bytes: 'params',
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** By name; the one for all before those of profiles. */
  'secret/list': {
    params: z.object({}),
    result: z.object({ secrets: z.array(SecretSchema) }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
  /** `removed`: false if there was none. */
  'secret/remove': {
    params: named,
    result: z.object({ removed: z.boolean() }),
    repeat: 'safe',
    whenDamaged: 'refused',
  },
} as const;
