import type { SETUP_METHODS } from '../../../protocol/setup.ts';
import { type Handlers, withBytes } from '../../../protocol/wire/shapes.ts';
import type { Setups } from '../../setup/setups.ts';

/** Handlers of `setup/*`. */
export function setupHandlers<P>(setups: Setups): Handlers<typeof SETUP_METHODS, P> {
  return {
    'setup/status': ({ profile }) => ({ setups: setups.list(profile) }),
    'setup/log': ({ profile, id }) => {
      const { setup, text, truncated } = setups.readLog(profile, id);
      return withBytes({ setup, truncated }, text);
    },
  };
}
