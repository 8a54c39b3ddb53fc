import type { Artifact } from '../../protocol/artifacts.ts';
import { HoldfastError } from '../../protocol/errors.ts';
import type { Connection } from '../connection/connection.ts';
import type { HostConnection } from '../connection/host-connection.ts';

/** An artifact, and the host that has it. */
export interface KeptArtifact {
  readonly host: HostConnection;
  readonly artifact: Artifact;
}

/** The artifact with this id, on this host or else on the first that is connected and has it. Errors: `not_found`. */
export async function findArtifact(
  connection: Connection,
  id: string,
  on?: HostConnection,
): Promise<KeptArtifact> {
  const { own, local } = connection;
  const others = connection.hosts.filter((host) => host.peer !== undefined);
  for (const host of new Set(on === undefined ? [own, local, ...others] : [on])) {
    try {
      const { artifact } = await host.call('artifact/show', { artifact: id });
      if (artifact.id === id) return { host, artifact };
    } catch (error) {
      if (HoldfastError.from(error).code !== 'not_found') throw error;
    }
  }
  throw new HoldfastError('not_found', 'The artifact is not there any more', {
    next: 'look at “Agent: Artifacts…”',
  });
}
