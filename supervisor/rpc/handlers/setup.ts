import { HoldfastError } from '../../../protocol/errors.ts';
import type { SETUP_METHODS } from '../../../protocol/setup.ts';
import { type Handlers, withBytes } from '../../../protocol/wire/shapes.ts';
import type { ProfileSetups } from '../../profiles/profile-setups.ts';
import type { Setups } from '../../setup/setups.ts';
import type { Client } from './session.ts';

/** Handlers of `setup/*`. */
export function setupHandlers<P extends Client>({
  setups,
  profileSetups,
}: {
  readonly setups: Setups;
  readonly profileSetups: Pick<ProfileSetups, 'run'>;
}): Handlers<typeof SETUP_METHODS, P> {
  return {
    'setup/run': async ({ profile, output, removeSecretFiles }, { peer, progress, signal }) => {
      const id = await profileSetups.run(profile, {
        reportProgress: progress,
        signal,
        removeSecretFiles,
        onOutput: (bytes) => {
          if (output === undefined) return;
          // No more than the log keeps, so a slow client is not waited for. A request ends with its connection.
          peer.notify('setup/output', { output }, bytes).catch(() => undefined);
        },
      });
      const setup = setups.list(profile).find((one) => one.id === id);
      if (setup === undefined)
        throw new HoldfastError('not_found', `The profile ${profile} was undeployed meanwhile`);
      return { setup };
    },
    'setup/status': ({ profile }) => ({ setups: setups.list(profile) }),
    'setup/log': ({ profile, id }) => {
      const { setup, text, truncated } = setups.readLog(profile, id);
      return withBytes({ setup, truncated }, text);
    },
  };
}
