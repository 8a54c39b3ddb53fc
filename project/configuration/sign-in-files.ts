import { baseName } from '../../protocol/paths.ts';
import { SIGN_IN_FILES } from '../../protocol/presets/index.ts';

const SIGN_IN_NAMES = SIGN_IN_FILES.map((path) => baseName(path).toLowerCase());

/** A sign-in file of any agent, in whatever folder, or what an editor or the agent leaves beside it: `auth.json.bak`. */
export function isSignInFile(path: string): boolean {
  const name = baseName(path).toLowerCase().replace(/^\./, '');
  return SIGN_IN_NAMES.some((signIn) => {
    const bare = signIn.replace(/^\./, '');
    return name.startsWith(bare) && /^(?:[.~-]|$)/.test(name.slice(bare.length));
  });
}
