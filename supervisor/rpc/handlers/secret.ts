import type { SECRET_METHODS } from '../../../protocol/secrets.ts';
import type { Handlers } from '../../../protocol/wire/shapes.ts';
import type { SecretStore } from '../../secrets/secret-store.ts';

/** Handlers of `secret/*`. No answer has a value. */
export function secretHandlers<P>(secrets: SecretStore): Handlers<typeof SECRET_METHODS, P> {
  return {
    'secret/set': ({ name, profile = null, expiresAt }, { bytes, releaseBytes }) => {
      try {
        const until = expiresAt === undefined ? null : Date.parse(expiresAt);
        return { secret: secrets.set(profile, name, bytes, until) };
      } finally {
        // The buffer is used again for other requests.
        bytes.fill(0);
        releaseBytes();
      }
    },
    'secret/list': () => ({ secrets: secrets.list() }),
    'secret/remove': ({ name, profile = null }) => ({ removed: secrets.remove(profile, name) }),
  };
}
