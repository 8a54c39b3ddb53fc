import type { DEPLOY_METHODS, SOURCE_METHODS } from '../../../protocol/deploy.ts';
import type { Handlers } from '../../../protocol/wire/shapes.ts';
import type { ProfileService } from '../../profiles/service.ts';

export interface DeployHandlersOptions {
  readonly profiles: ProfileService;
  /** The rules of the profile's file may have changed. */
  readonly onDeployed: () => void;
}

/** Handlers of `profile/deploy/*`. An upload belongs to the connection that began it. */
export function deployHandlers<P extends { readonly closed: Promise<unknown> }>({
  profiles,
  onDeployed,
}: DeployHandlersOptions): Handlers<typeof DEPLOY_METHODS & typeof SOURCE_METHODS, P> {
  return {
    'profile/deploy/begin': async (params, { peer }) => {
      const begun = await profiles.beginDeploy(params, peer);
      const { upload } = begun;
      if (upload !== null) {
        // What cannot be removed now is a leftover for the next supervisor.
        void peer.closed.then(() => profiles.uploads.abort(upload, peer)).catch(() => undefined);
      }
      return begun;
    },
    'profile/deploy/append': async ({ upload, tree, entries }, { peer, bytes }) => {
      await profiles.uploads.append(upload, peer, tree, entries, bytes);
      return {};
    },
    'profile/deploy/commit': async (params, { peer, progress, signal }) => {
      const deployed = await profiles.commitDeploy(params, peer, { reportProgress: progress, signal });
      onDeployed();
      return deployed;
    },
    'profile/source': (params) => profiles.readSource(params),
    'profile/deploy/abort': async ({ upload }, { peer }) => {
      await profiles.uploads.abort(upload, peer);
      return {};
    },
  };
}
