import type { MANIFEST_METHODS } from '../../../protocol/manifest.ts';
import type { Handlers } from '../../../protocol/wire/shapes.ts';
import type { Manifests } from '../../manifests/manifests.ts';
import type { SessionRow } from '../../store/sessions.ts';

export interface ManifestHandlersOptions {
  readonly manifests: Manifests;
  readonly findSession: (reference: string) => SessionRow;
}

/** The answers to `manifest/*`. */
export function manifestHandlers<P>({
  manifests,
  findSession,
}: ManifestHandlersOptions): Handlers<typeof MANIFEST_METHODS, P> {
  return {
    'manifest/show': async ({ session: reference, id }) => {
      const session = findSession(reference);
      return {
        envelope: id === undefined ? await manifests.show(session) : manifests.showKept(session, id),
      };
    },
    'manifest/list': ({ session }) => manifests.list(findSession(session)),
    'manifest/key': () => manifests.key(),
  };
}
