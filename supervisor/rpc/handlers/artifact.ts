import type { ARTIFACT_METHODS } from '../../../protocol/artifacts.ts';
import { type Handlers, withBytes } from '../../../protocol/wire/shapes.ts';
import type { PromotedArtifacts } from '../../handoff/promoted-artifacts.ts';

/** The answers to `artifact/*`. */
export function artifactHandlers<P>({
  promotedArtifacts: artifacts,
}: {
  readonly promotedArtifacts: PromotedArtifacts;
}): Handlers<typeof ARTIFACT_METHODS, P> {
  return {
    'artifact/create': (request, { signal }) => artifacts.create(request, signal),
    'artifact/list': (request) => artifacts.list(request),
    'artifact/show': (request) => artifacts.show(request),
    'artifact/files': (request) => artifacts.files(request),
    'artifact/read': async (request) => withBytes({}, await artifacts.read(request)),
    'artifact/remove': (request) => artifacts.remove(request),
  };
}
